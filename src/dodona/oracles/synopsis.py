"""A synopsis: a published value that answers its class of questions for nothing, and says how well.

``Synopsis`` is an oracle, so every algorithm runs on it unchanged and costs nothing. What differs between releases
is the ``Body``: the published arrays and the rule that answers from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import ConceptClass
from dodona.errors import BadEffort, BadQuery, Refused, Unsupported
from dodona.oracles.answer import Answer, Bill, Price, Selection, plain
from dodona.oracles.apart import asked_apart, priced_apart
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.quantiles import counted, counted_price
from dodona.oracles.rows import left_out
from dodona.oracles.tabular import Sample
from dodona.query.candidates import Scores
from dodona.query.expr import Expr, Literal
from dodona.query.plan import Plan, compile_query
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Integer, Schema
from dodona.query.statistic import Query, Stack, Value

if TYPE_CHECKING:
    from dodona.concepts.concept import ConceptClass


Floats = NDArray[np.float64]
_AT_ONCE = 500
NOT_PRIVATE = "NOT PRIVATE: computed from the data without noise. For the curator only; do not publish."


@dataclass(frozen=True, eq=False)
class Usefulness:
    """``errors``: |synopsis - truth| of each judged member, as fractions of the rows. ``members``: how many there
    are.
    """

    errors: Floats
    members: int
    about: str

    @property
    def worst(self) -> float:
        """The e for which the synopsis was (e, .)-useful on what was judged (Definition 2.6)."""
        return float(self.errors.max())

    @property
    def mean(self) -> float:
        """The mean error."""
        return float(self.errors.mean())

    def quantile(self, fraction: float) -> float:
        """The error that this fraction of the members stay within."""
        return float(np.quantile(self.errors, fraction))

    def plot(self, axes: Any) -> None:
        """Draws how many members stay within each error, on a Matplotlib ``axes``."""
        ordered = np.sort(self.errors)
        axes.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post")
        axes.set(xlabel="error, as a fraction of the rows", ylabel="members within", ylim=(0, 1.02), title=self.about)
        axes.text(0.98, 0.04, "not private", ha="right", transform=axes.transAxes, color="firebrick")

    def __str__(self) -> str:
        judged = f"{len(self.errors):,} of {self.members:,} members"
        shown = ", ".join(f"{q:.0%} within {self.quantile(q):.3g}" for q in (0.5, 0.9, 0.99))
        return f"{self.about}: worst {self.worst:.3g}, mean {self.mean:.3g}, {shown} ({judged}). {NOT_PRIVATE}"


def usefulness(
    synopsis: Oracle, exact: Oracle, concepts: ConceptClass, *, most: int = 5000, seed: int | None = None
) -> Usefulness:
    """The errors over the class, or over ``most`` members drawn at random where it has more.

    ``exact`` must hold the data without noise: anything else would measure noise against noise.
    """
    rows = exact.rows
    if rows is None or not _noiseless(exact):
        raise Unsupported("usefulness is measured against the truth: hand it dodona.Exact(table), as the curator can.")
    size = concepts.size(exact.schema)
    rng = np.random.default_rng(seed)
    drawn = range(size) if size <= most else sorted({int(rng.integers(size)) for _ in range(most)})
    members = [concepts.member(exact.schema, index) for index in drawn]
    errors = [
        np.abs(_totals(synopsis, members[start : start + _AT_ONCE]) - _totals(exact, members[start : start + _AT_ONCE]))
        for start in range(0, len(members), _AT_ONCE)
    ]
    return Usefulness(np.concatenate(errors) / max(rows, 1), size, concepts.describe())


def _noiseless(oracle: Oracle) -> bool:
    """Whether it answers from rows, for nothing and without noise; asks only for a price, so nothing is charged."""
    if isinstance(oracle, Synopsis):
        return False
    try:
        price = oracle.price(Value(Literal(True)))
    except BadEffort:  # it wants to be paid
        return False
    return price.cost.unit == "nothing" and not np.any(price.spread)


def _totals(oracle: Oracle, members: Sequence[Expr]) -> Floats:
    answer = oracle.ask(Stack(tuple(map(Value, members))))
    return np.ravel(np.asarray(answer.total, dtype=np.float64))


# How useful a synopsis is, measured by someone who may see the data (BLR Definitions 2.6 and 5.3).
#
# ``synopsis.evaluate(exact, concepts)`` compares every member of a class, or a random sample of them, with the truth.
# The result depends on the data without noise: it is NOT private, says so, and is for the curator's eyes only.


Arrays = dict[str, NDArray[Any]]


_CURVES = "release.intervals of one column has, and quantile(column, ...) asks any synopsis that knows the column."

KINDS: dict[str, type[Body]] = {}
"""Every kind of body that is imported, by name: a class that states its kind is found by it, and loads its files."""


class Body(ABC):
    """Abstract: what is published and how it answers. Kinds are final; the name in ``kind`` stands in files."""

    kind: ClassVar[str]
    proven: bool = False
    """Whether margins follow from the noise (or a theorem); otherwise they are estimated, and say so."""

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__dict__:  # a base that kinds share
            return
        known = KINDS.setdefault(cls.kind, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"a kind of body must have a name of its own: files say it. Got {cls.kind!r} twice.")

    @abstractmethod
    def arrays(self) -> Arrays:
        """The published numbers: one-dimensional arrays, by name."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The rest, as plain JSON data."""

    @classmethod
    @abstractmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Body:
        """The inverse of ``arrays`` and ``settings``."""

    @abstractmethod
    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(totals, margins), flat, in the plan's layout; ``Unsupported``, naming the class, for any other question."""

    def quantile(self, fraction: float) -> float:  # noqa: ARG002 - only curves can
        """The value below which this fraction of the rows lie."""
        raise Unsupported(f"a release of the kind {self.kind} has no curve to read quantiles from: {_CURVES}")

    def cdf(self) -> tuple[Floats, Floats]:
        """(values, fractions of the rows below them)."""
        raise Unsupported(f"a release of the kind {self.kind} has no curve: {_CURVES}")

    def histogram(self, bins: int) -> tuple[Floats, Floats]:  # noqa: ARG002
        """(rows in each bin, ends of the bins)."""
        raise Unsupported(f"a release of the kind {self.kind} has no curve to bin: {_CURVES}")

    def proves(self, query: Query) -> bool:  # noqa: ARG002 - unless a kind has both sorts of margin
        """Whether the margin of THIS question, one that ``totals`` answers, is proven."""
        return self.proven

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:  # noqa: ARG002 - only models can
        """Columns of made-up rows that look like the published numbers; releases that are no model of rows refuse."""
        raise Unsupported(f"a release of the kind {self.kind} answers questions, but is no model to draw rows from.")


@dataclass(frozen=True)
class Header:
    """What everyone should know of a release.

    ``about``: the class of questions it answers. ``accuracy``: its error, in words and numbers. ``cost``: what it cost
    when it was made. ``rows``: the public number of rows, by which means divide.
    """

    name: str
    about: str
    accuracy: str
    method: str
    schema: Schema
    rows: int | None
    cost: Bill
    notes: Mapping[str, Any] = field(default_factory=dict)


class Synopsis(Oracle):
    """An oracle over what is already published: answers are free."""

    def __init__(self, header: Header, body: Body) -> None:
        self.header, self.body = header, body

    @property
    def schema(self) -> Schema:
        """The columns it knows."""
        return self.header.schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self.header.rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self.header.name

    @property
    def free(self) -> bool:
        """Yes: what is published was paid for."""
        return True

    def answer(self, request: Request) -> Answer:
        """From what is published."""
        if isinstance(request.query, Apart):
            return asked_apart(request, request.query, self.answer)
        if isinstance(request.query, Quantiles):
            return counted(self, request, request.query)
        plan = self._plan(request.query)
        confidence = request.effort.confidence
        totals, margins = self.body.totals(request.query, plan, confidence)
        total, margin = plain(plan.shaped(totals)), plain(plan.shaped(margins))
        spread = margin / 2  # margins of published answers are stated, not derived from one distribution
        bill = self._free(request.query)
        known = str(request.query), total, spread, margin, confidence, self.rows, plan.segments, bill
        return Answer(*known, self.proves(request.query), self._left_out(request.query, plan))

    def estimate(self, request: Request) -> Price:
        """Free; the margin is the published one."""
        if isinstance(request.query, Apart):
            return priced_apart(request, request.query, self.estimate)
        if isinstance(request.query, Quantiles):
            return counted_price(self, request, request.query)
        answer = self.answer(request)
        what = answer.question, answer.cost, answer.spread, answer.margin, answer.confidence
        return Price(*what, self.rows, self.header.accuracy, True, answer.proven)

    def choose(self, request: Request, mechanism: str) -> Selection:  # noqa: ARG002 - nothing is random here
        """The candidate with the largest published total, or score made of published totals."""
        query, confidence = request.query, request.effort.confidence
        asked = query.statistics(self.schema) if isinstance(query, Scores) else query
        plan = self._plan(asked)
        totals, margins = self.body.totals(asked, plan, confidence)
        scores = query.tally(self.schema, totals) if isinstance(query, Scores) else totals
        index = int(np.argmax(scores))
        what = f"candidate {index} of {len(scores)}"
        # A score of many totals errs by at most the sum of their margins.
        margin = 2 * float(np.sum(margins) if isinstance(query, Scores) else np.max(margins))
        told = self._left_out(asked, plan)
        return Selection(index, what, margin, confidence, self.rows, self._free(asked), self.proves(asked), told)

    def _plan(self, query: Query) -> Plan:
        plan = compile_query(query, self.schema, level=True)
        if any(block.counts_values for block in plan.program.blocks):
            raise Unsupported("different values are counted where all rows are: ask a Curator, not a synopsis.")
        if plan.program.observed:
            raise Unsupported("open text is read where the rows are: ask a Curator, not a synopsis.")
        if plan.program.fates:
            raise Unsupported("losses are counted where the raw values are: ask a Curator, not a synopsis.")
        return plan

    def _left_out(self, query: Query, plan: Plan) -> tuple[str, ...]:
        """What the rows it was made of left out, whose they were first."""
        whose, limited, limit = self.header.cost.neighbours.partition(" of ")[2].partition(" with ")
        return ((f"{limit} of {whose} count",) if limited else ()) + left_out(query, plan, self.schema)

    def proves(self, query: Query) -> bool:
        """Whether the margin of its answer to this question is proven, not estimated."""
        return self.body.proves(query)

    def _free(self, query: Query) -> Bill:
        how = f"published: {self.header.method}" + ("" if self.proves(query) else "; its error is estimated")
        return Bill(0.0, "nothing", 0.0, 0.0, self.header.cost.neighbours, how)

    def median(self) -> float:
        """The middle value of a published curve (``release.intervals``); ``quantile`` has its margin as well."""
        return self.body.quantile(0.5)

    def cdf(self) -> tuple[Floats, Floats]:
        """(values, fractions of the rows below them) of a published curve, to be drawn."""
        return self.body.cdf()

    def histogram(self, bins: int = 20) -> tuple[Floats, Floats]:
        """(rows in each bin, ends of the bins) of a published curve, as ``numpy.histogram`` gives them."""
        return self.body.histogram(bins)

    def sample(self, rows: int, random: np.random.Generator | None = None) -> Sample:
        """A made-up table of any size, as columns: free, since it is drawn from what is published. ``to_pandas()``,
        ``to_csv("made-up.csv")`` and the like hand it on. Numbers are drawn evenly from their buckets.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise BadQuery(f"rows must be a whole number, 0 or more. Got {rows!r}.")
        drawn = self.body.draw(rows, random or np.random.default_rng())
        wholes = [name for name in drawn if type(self.schema[name]) is Integer]
        return Sample(drawn, wholes)

    def evaluate(
        self, exact: Oracle, concepts: ConceptClass, *, most: int = 5000, seed: int | None = None
    ) -> Usefulness:
        """For curators: the error of every member of a class, or of ``most`` drawn at random, against the truth.

        ``exact``: ``dodona.Exact(table)``. The result is NOT private, and says so (BLR Definitions 2.6 and 5.3).
        """

        return usefulness(self, exact, concepts, most=most, seed=seed)

    def save(self, path: Any) -> None:
        """To one file that loads anywhere without the data (``dodona.synopses.load``)."""
        from dodona.synopses import save

        save(self, path)

    def __str__(self) -> str:
        head, how = self.header, "proven" if self.body.proven else "estimated"
        accuracy = head.accuracy if how in head.accuracy else f"{head.accuracy} ({how})"
        return f"{head.about}\n  method: {head.method}\n  accuracy: {accuracy}\n  made for: {head.cost}"


@dataclass(frozen=True)
class Attached:
    """A synopsis that a curator may answer from; ``estimates``: also where its margin is not proven."""

    synopsis: Synopsis
    estimates: bool


def published_answer(
    attached: Sequence[Attached], request: Request, rows: int | None
) -> tuple[Synopsis, Answer] | None:
    """The attached synopsis with the least stated error, if that meets the question's tolerance; else None.

    A question that a published synopsis answers well enough is not asked of the rows again.

    Only a tolerance says how good an answer must be; a share, epsilon or rho asks for noise of its own. A tolerance is
    a promise, so the margin of this very question must be proven, unless estimates were accepted. Synopses see the
    question, never rows, so looking is free. They were made under the table's bounds, and answer for no others.
    """
    printed = request.select is not None
    if request.effort.kind != "tolerance" or request.bounds is not None or (rows is None and not printed):
        return None
    per = 1 if printed else max(rows or 0, 1)  # what a total is divided by before it is shown
    best: tuple[float, Synopsis, Answer] | None = None
    for held in attached:
        synopsis = held.synopsis
        try:
            answer = synopsis.answer(request)
        except Refused:  # not a question of its class
            continue
        if not held.estimates and not synopsis.proves(request.query):
            continue
        worst = float(np.max(answer.margin)) / per
        if worst <= float(request.effort.amount) and (best is None or worst < best[0]):
            best = worst, synopsis, answer
    return None if best is None else best[1:]


def require_attachable(synopsis: Synopsis, name: str, schema: Schema, people: str | None, estimates: bool) -> None:
    """Refuses a synopsis that promises less than a curator's own answers, or speaks of something else.

    ``people``: what the curator promises, where it protects people and not rows.
    """
    if not (synopsis.body.proven or estimates):
        raise Unsupported(
            f"the margins of this synopsis ({synopsis.header.method}) are estimated, not proven, and a tolerance "
            "is a promise. Attach it with estimates=True to accept them, or release with a method of proven error."
        )
    if synopsis.name != name or any(schema.get(c) != synopsis.schema[c] for c in synopsis.schema):
        raise Unsupported(
            f"a synopsis must be of the same table and columns to be attached: this curator holds {name!r}, "
            f"the synopsis is of {synopsis.name!r}."
        )
    if people is not None and synopsis.header.cost.neighbours != people:
        raise Unsupported(
            f"answers of this curator protect {people}; the synopsis was released under "
            f"{synopsis.header.cost.neighbours!r}, which promises another thing. Ask the synopsis itself."
        )
