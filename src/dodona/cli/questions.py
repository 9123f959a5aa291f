"""``dodona price``, ``ask``, ``sql`` and ``explain``: questions to a table.

The table is here or, with ``--server``, behind a server. The options that state an effort are written once and reach
each command as one value.
"""

from __future__ import annotations

import inspect
import json as plain_json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dodona.cli import show
from dodona.cli.waiting import Wait
from dodona.errors import Refused

if TYPE_CHECKING:
    from dodona.oracles.answer import Answer, Bill, Numbers
    from dodona.oracles.curator import Curator
    from dodona.oracles.remote import Remote
    from dodona.oracles.rows import Rows
    from dodona.oracles.tabular import Tabular

Survey = Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="What the curator states about the table.")]
Question = Annotated[str, typer.Argument(metavar="QUESTION", help="A row expression: age >= 65 AND smoker")]
AnyQuestion = Annotated[str, typer.Argument(metavar="QUESTION", help="A row expression or a SELECT.")]
Statement = Annotated[str, typer.Argument(metavar="SELECT", help="SELECT ... FROM survey WHERE ... GROUP BY ...")]
Analyst = Annotated[str | None, typer.Option(help="Who asks; stands in the ledger.  [default: the login name]")]
RequestId = Annotated[
    str | None, typer.Option(metavar="ID", help="Your name for this request: a retry gets the same answer, uncharged.")
]
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Ask the dataset of this name there: https://host:8400.")
]
KeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Holds your key for --server.  [default: DODONA_KEY is used]")
]
Found = Annotated[
    list[Path] | None,
    typer.Option("--keys", metavar="FILE", help="Group by the keys in this file, which a release of keys wrote."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Csv = Annotated[bool, typer.Option("--csv", help="Its numbers as CSV: n, n_margin, n_low, n_high.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="A table in Markdown.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write there, not here: .csv, .json, .md say how."),
]
Effort = dict[str, Any]

_EFFORT: dict[str, tuple[Any, str | None]] = {
    "tolerance": (
        Annotated[
            str | None,
            typer.Option(metavar="T", help="Error of the mean, or, in a SELECT, of each number printed: 0.005; 500."),
        ],
        None,
    ),
    "share": (
        Annotated[str | None, typer.Option(metavar="S", help="Fraction of the whole budget to spend: 0.05 or 1/20.")],
        None,
    ),
    "epsilon": (Annotated[str | None, typer.Option(metavar="E", help="Spend this epsilon (pure noise).")], None),
    "rho": (Annotated[str | None, typer.Option(metavar="R", help="Spend this rho (Gaussian noise).")], None),
    "confidence": (Annotated[str, typer.Option(metavar="C", help="Probability of the error bars.")], "0.95"),
}


def stating_effort(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of ``_EFFORT`` in the place of its parameter ``effort``, which gets their values."""

    def run(**given: Any) -> None:
        command(effort={name: given.pop(name) for name in _EFFORT}, **given)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _EFFORT.items()
    ]
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        parameters += options if name == "effort" else [own]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@stating_effort
def price(
    survey: Survey,
    question: AnyQuestion,
    effort: Effort,
    server: Server = None,
    key_file: KeyFile = None,
    keys: Found = None,
    json: Json = False,
) -> None:
    """Say what a question would cost and how good its answer would be; reads no row, spends nothing."""
    if server is not None:
        _require_here(keys)
        offer = _connect(server, survey, key_file).price(question, **effort)
        known = plain_json.loads(offer.to_json()) | {"question": question}
        noise, budget, left = offer.cost.mechanism, [], " to you"
    else:
        curator = _knowing(_curator(survey, "price"), keys)
        offer = curator.price(question, **effort)
        known = {"question": question, "affordable": offer.affordable, "confidence": offer.confidence}
        known |= {"margin": _plain(offer.margin), "tolerance": _plain(offer.tolerance), "rows": offer.rows}
        known |= {"proven": offer.proven, "columns": [vars(column) for column in offer.columns]}
        known |= {"sensitivity": offer.sensitivity, "cost": vars(offer.cost)}
        noise, left = f"{offer.cost.mechanism}; {offer.sensitivity}", ""
        budget = [("budget now", show.spent_line(curator.budget, curator.ledger.spent()))]
    if json:
        return show.dump(known)
    verdict = "Affordable; nothing was spent." if offer.affordable else f"NOT affordable with what is left{left}."
    pairs = [("would cost", show.cost(offer.cost)), *show.accuracy(offer), ("noise", noise), *budget]
    return show.say(show.facts(pairs) + "\n" + show.paint(verdict, "bold"))


@stating_effort
def ask(
    survey: Survey,
    question: Question,
    effort: Effort,
    analyst: Analyst = None,
    request_id: RequestId = None,
    server: Server = None,
    key_file: KeyFile = None,
    json: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    output: Output = None,
) -> None:
    """Answer a question about the rows, with noise; charged to the budget. State exactly one effort."""
    form, name = Form.of(json, csv, markdown, output), request_id or new_name()
    with Wait("asking", name, there=server is not None) as wait:
        if server is not None:
            answer = _connect(server, survey, key_file, analyst).ask(question, **effort, request_id=name)
            receipt = _receipt(answer.cost)
        else:
            curator = _curator(survey, analyst, wait)
            answer = curator.ask(question, **effort, request_id=name)
            receipt = show.receipt(answer.cost, curator.ledger)
    return form.hand_over(answer, answered(question, answer), told(question, answer, receipt))


@stating_effort
def sql(
    survey: Survey,
    statement: Statement,
    effort: Effort,
    analyst: Analyst = None,
    request_id: RequestId = None,
    server: Server = None,
    key_file: KeyFile = None,
    keys: Found = None,
    json: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    output: Output = None,
) -> None:
    """Answer a SELECT, of aggregates under WHERE and GROUP BY, finished as you like; charged to the budget."""
    form, name = Form.of(json, csv, markdown, output), request_id or new_name()
    with Wait("asking", name, there=server is not None) as wait:
        if server is not None:
            _require_here(keys)
            rows = _connect(server, survey, key_file, analyst).sql(statement, **effort, request_id=name)
            receipt = _receipt(rows.cost)
        else:
            curator = _knowing(_curator(survey, analyst, wait), keys)
            rows = curator.sql(statement, **effort, request_id=name)
            receipt = show.receipt(rows.cost, curator.ledger)
    return form.hand_over(rows, as_data(rows), shown_table(rows, receipt))


@stating_effort
def explain(survey: Survey, question: AnyQuestion, effort: Effort, keys: Found = None) -> None:
    """Show how a question is read, what one row can change, its noise and its statement; spends nothing."""
    confidence = effort.pop("confidence")
    stated = any(value is not None for value in effort.values())
    curator = _knowing(_curator(survey, "explain"), keys)
    explained = curator.explain(question, **(effort if stated else {"share": 1}), confidence=confidence)
    show.say("\n".join(map(show.clean, explained.split("\n"))) + "\nNothing was run, nothing was spent.")


def _curator(survey: Path, analyst: str | None, wait: Wait | None = None) -> Curator:
    """Without ``wait`` nothing will be charged."""
    from dodona.config import Config

    return Config.read(survey).open_curator(analyst, asking=bool(wait), during=wait.during if wait else None)


def _knowing(curator: Curator, keys: list[Path] | None) -> Curator:
    """The curator to whom what was found is a category; refused before anything is charged."""
    from dodona.synopses import load

    for file in keys or ():
        curator = curator.with_keys(load(file))
    return curator


def _require_here(keys: list[Path] | None) -> None:
    if keys:
        raise Refused("keys of a file are known here, not behind a server: its curator states them in the schema.")


def new_name(work: str = "") -> str:
    """What a request is called that nobody has named, so that it can be had again; ``work``: of many questions."""
    return f"{work}:{secrets.token_hex(8)}" if work else secrets.token_hex(8)


def _connect(server: str, dataset: Path, key_file: Path | None, analyst: str | None = None) -> Remote:
    """The oracle behind the server; a key never stands on a command line, where other users would see it."""
    from dodona.oracles.remote import connect

    if analyst is not None:
        raise Refused("with --server your key says who asks: leave out --analyst.")
    try:
        key = None if key_file is None else key_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise Refused(f"the key's file must be readable. Got {str(key_file)!r}.") from None
    return connect(server, key=key, dataset=str(dataset))


@dataclass(frozen=True)
class Form:
    """How a result is handed over, settled before anything is charged: ``kind``, and the file it goes to, if any."""

    kind: str
    output: Path | None = None

    @staticmethod
    def of(json: bool, csv: bool, markdown: bool, output: Path | None) -> Form:
        """What the options say; a file that is there, or could not be made, is refused now, not after the charge."""
        stated = [kind for kind, wanted in (("json", json), ("csv", csv), ("markdown", markdown)) if wanted]
        if len(stated) > 1:
            raise Refused(f"one form at a time. Got {' and '.join('--' + kind for kind in stated)}.")
        if output is None:
            return Form(stated[0] if stated else "text")
        require_free(output)
        by_name = {".json": "json", ".csv": "csv", ".md": "markdown"}.get(output.suffix.lower(), "text")
        return Form(stated[0] if stated else by_name, output)

    def hand_over(self, result: Tabular, data: dict[str, Any], text: str) -> None:
        """Print it, or write it and say where."""
        if self.output is None and self.kind == "json":
            return show.dump(data)
        forms = {"json": lambda: plain_json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"}
        forms |= {"csv": result.to_csv, "markdown": result.to_markdown, "text": lambda: text + "\n"}
        made = forms[self.kind]()
        if self.output is None:
            return show.say(made.rstrip("\n").replace("\r\n", "\n"))
        try:
            with self.output.open("x", encoding="utf-8", newline="") as file:
                file.write(made)
        except OSError:  # it was paid for
            show.say(made)
            raise Refused(f"{self.output} could not be written; what it would have held stands above.") from None
        return show.say(f"wrote {self.output}; {result.cost}")


def require_free(place: Path) -> None:
    """Refused before anything is charged: a file that is there, or could not be made."""
    if place.exists() or place.is_symlink():
        raise Refused(f"{place} is there already, and would be overwritten: name another file.")
    if not os.access(place.absolute().parent, os.W_OK | os.X_OK):
        raise Refused(f"{place} cannot be written: name a file in a folder that is there.")


def answered(question: str, answer: Answer) -> dict[str, Any]:
    """An answer as plain data."""
    rows, total, margin = answer.rows, float(answer.total), float(answer.margin)
    known = {"question": question, "total": total, "total_margin": margin, "confidence": answer.confidence}
    per_row = {} if rows is None else {"mean": answer.mean, "mean_margin": margin / max(rows, 1)}
    known |= {"proven": answer.proven, "leaves_out": answer.leaves_out}
    return {**known, **per_row, "rows": rows, "cost": vars(answer.cost)}


def told(question: str, answer: Answer, receipt: list[tuple[str, str]]) -> str:
    """An answer for people."""
    rows, total, margin = answer.rows, float(answer.total), float(answer.margin)
    pairs = [] if rows is None else [("mean", show.number(total / max(rows, 1), margin / max(rows, 1)))]
    pairs += [("total", show.number(total, margin) + ("" if rows is None else f" over {rows:,} rows"))]
    bold = [(name, show.paint(value, "bold")) for name, value in pairs]
    head = f"{show.clean(question)}  ({show.certain(answer.confidence, answer.proven)})\n"
    return head + show.facts([*bold, *show.beside(answer.leaves_out), *receipt])


def shown_table(rows: Rows, receipt: list[tuple[str, str]]) -> str:
    """A SELECT's table for people."""
    return f"{show.grid(rows)}\n\n{show.facts([*show.below(rows), *receipt])}"


def as_data(rows: Rows) -> dict[str, Any]:
    """A table of estimates as plain data, with what must be known of its numbers."""
    known = {"columns": rows.columns, "records": rows.to_dicts(), "confidence": rows.confidence}
    return {**known, "proven": rows.proven, "told": rows.told, "leaves_out": rows.leaves_out, "cost": vars(rows.cost)}


def _receipt(bill: Bill) -> list[tuple[str, str]]:
    """Of a charge in a ledger behind a server, of which only the bill is known."""
    place = f"charge {bill.seq}, {str(bill.hash)[:12]} ({bill.mechanism}; {bill.neighbours} neighbours)"
    left = f"{bill.unit} {show.short(bill.left)} of the lifetime budget"
    return [("cost", show.cost(bill)), ("left", left), ("receipt", place)]


def _plain(values: Numbers) -> float | list[Any]:
    return values if isinstance(values, float) else values.tolist()
