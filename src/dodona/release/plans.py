"""What boxes, halfspaces and small databases would cost, promise and need, before anything is spent.

Each planner gives verdicts: the method of ``dodona.release`` first, priced on the oracle it would run on, and where the
budget is of pure epsilon the paper's theorem after it (``dodona.bounds.blr``). ``e`` is the wish: an error of at most
this fraction of the rows. Noise is in rows, whatever their number, so the rows needed are those it is e of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dodona.answer import Bill
from dodona.bounds import blr
from dodona.bounds.base import Outcome, Verdict
from dodona.concepts.base import ConceptClass
from dodona.errors import BadEffort, Unsupported
from dodona.oracle import Oracle
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number
from dodona.query.statistic import Value
from dodona.release.boxes import layout, levels_query, predicted
from dodona.release.domain import Domain, read_by
from dodona.release.halfspace_base import base_plan
from dodona.release.halfspaces import check_probes, directions, probes_for, probes_query, public_rows
from dodona.release.portion import Portion
from dodona.release.small_database import CERTIFICATE, best_error, listing, rounds_for
from dodona.synopses.forms import Scaled
from dodona.synopses.halfspaces import Halfspaces
from dodona.synopses.mixture import Mixture
from dodona.synopses.rows import STATED

_Z = NormalDist().inv_cdf((1 + STATED) / 2)


def plan_boxes(
    oracle: Oracle,
    columns: Sequence[str],
    *,
    e: float,
    bits: int | Sequence[int | None] | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> list[Verdict]:
    """``boxes`` with its 95 % error of a random box in rows, by noise alone. The paper has no theorem for boxes."""
    rows, portion = _rows(oracle, e), Portion.of(share, epsilon, rho)
    axes, levels = layout(oracle, columns, bits)
    deviation = predicted(oracle, axes, portion, levels)
    price = oracle.price(levels_query(axes, levels), **portion.part())
    error, needed = _Z * deviation, math.ceil(_Z * deviation / e)
    details = {"rows off, root mean square": deviation, "levels": float(len(levels))}
    what = f"a random box over {', '.join(map(str, axes))} within {e:g} of {rows:,} rows"
    how = "simulated noise of the levels"
    why = (
        "By noise alone: shrinkage lessens it on smooth data and may add to it on steep ones; the release states both."
    )
    return [Verdict(what, _outcome(rows, needed), how, error, needed, _cost(price.cost), why, details)]


def plan_halfspaces(
    oracle: Oracle,
    columns: Sequence[str],
    *,
    e: float,
    gamma: float = 0.1,
    bits: int = 16,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    translated: bool = True,
    probes: int | None = None,
) -> list[Verdict]:
    """``halfspaces`` with the model's own 95 % error of a random halfspace, in rows, then Theorem 6.5.

    The model's error is taken at its largest prior and without a distribution, so data can only make it smaller in the
    model's eyes; it is no worst case, so the verdict on it is "vacuous": no theorem promises it. ``bits``: precision of
    a column, and ``gamma``: as in Definition 5.3; both for the theorem alone.
    """
    rows, portion, scaled = _rows(oracle, e), Portion.of(share, epsilon, rho), Scaled.of(oracle.schema, columns)
    public_rows(oracle)
    check_probes(probes)
    base, d = base_plan(oracle, scaled, portion, rows), len(scaled.columns)
    left = portion.part(base.shares.probes)
    count = probes if probes is not None else probes_for(oracle, scaled, left, rows, base)
    y = directions(count, d, translated)
    noise = float(np.mean(np.square(oracle.price(probes_query(scaled, y), **left).spread))) / rows**2
    body = Halfspaces(scaled, rows, y, np.full(count, 0.5), Mixture.unknown(d), noise, 1.0, 0.0)
    typical = float(np.mean(body.fraction(directions(200, d, translated, 1))[1]))
    whole = oracle.price(Value(scaled.condition(y[0])), **portion.part()).cost
    what = f"a random halfspace over {', '.join(scaled.columns)} within {e:g} of {rows:,} rows, by {count} probes"
    why = "The error is the model's own, before it has seen an answer: judge it by measurement."
    details = {"probes": float(count), "noise of a probe, in rows": math.sqrt(noise) * rows}
    model = "arc-cosine kernel regression, no theorem"
    found = [Verdict(what, Outcome.VACUOUS, model, _Z * typical * rows, None, _cost(whole), why, details)]
    if whole.unit == "epsilon":
        found.append(blr.halfspaces(rows, d, bits, e, gamma, Fraction(whole.amount)))
    return found


def plan_small_database(
    oracle: Oracle,
    concepts: ConceptClass,
    *,
    size: int,
    e: float,
    columns: Sequence[str] | None = None,
    bits: int | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> list[Verdict]:
    """``small_database`` at ``size`` rows by the method it would take, then Theorem 3.1 with the size it asks for."""
    rows, portion = _rows(oracle, e), Portion.of(share, epsilon, rho)
    names = [str(oracle.schema.find(c) or c) for c in columns] if columns else read_by(concepts, oracle.schema)
    points, members = Domain.of(oracle.schema, names, bits).size, concepts.size(oracle.schema)
    candidates, listed = listing(points, size)
    # All of an (epsilon, delta) budget in one selection buys its whole epsilon.
    payer = (oracle.purely() if listed and portion.whole else None) or oracle
    bill = payer.price(Value(concepts.member(oracle.schema, 0)), **portion.part()).cost
    if listed:
        found = [_selection(rows, members, size, candidates, e, bill)]
    else:
        found = [_iterative(oracle, concepts, points, members, size, e, portion, bill)]
    if bill.unit == "epsilon":
        amount = Fraction(bill.amount)
        found.append(blr.small_database(rows, points, concepts.vc_dimension(oracle.schema), e, amount))
    return found


def _selection(rows: int, members: int, size: int, candidates: int, e: float, bill: Bill) -> Verdict:
    """n sqrt(ln(2|C|)/(2m)) for the best database, (2/epsilon) ln(M/delta) for the choice, 1 for rounding."""
    chosen = 2 * math.log(candidates / (1 - STATED)) / _strength(bill) if bill.amount else 0.0
    part = best_error(rows, members, size) / rows
    needed = math.ceil((chosen + 1) / (e - part)) if e > part else None
    outcome = Outcome.INFEASIBLE if needed is None else _outcome(rows, needed)
    why = (
        "" if needed is not None else f"{size} rows promise no better than {part:.3g} of the rows: take a larger size."
    )
    details = {"databases": float(candidates), "rows off by the choice": chosen}
    what = f"a synthetic table of {size} rows within {e:g} of {rows:,} rows, by selection"
    return Verdict(what, outcome, "BLR Theorem 3.1", part * rows + chosen + 1, needed, _cost(bill), why, details)


def _iterative(
    oracle: Oracle,
    concepts: ConceptClass,
    points: int,
    members: int,
    size: int,
    e: float,
    portion: Portion,
    bill: Bill,
) -> Verdict:
    """The certificate's own part is known before; how well the weights will fit is not."""
    half = portion.part(CERTIFICATE / 2)
    price = oracle.price(Value(concepts.member(oracle.schema, 0)), confidence=(1 + STATED) / 2, **half)
    # A choice among 2|C| scores at epsilon' is within (2/epsilon') ln(2|C|/delta') of the best.
    strength = _strength(price.cost)
    chosen = 2 * math.log(2 * members * 2 / (1 - STATED)) / strength if price.cost.amount else 0.0
    own = chosen + float(np.max(price.margin)) + 1
    rounds = rounds_for(oracle, concepts, points, members, portion)
    details = {"rows off by the certificate": own, "rounds": float(rounds)}
    what = f"a synthetic table of {size} rows within {e:g} of {oracle.rows:,} rows, by multiplicative weights"
    why = "The error is certified privately when the table is made; it is never stated below the certificate's own."
    needed = math.ceil(own / e)
    outcome = Outcome.VACUOUS if (oracle.rows or 0) >= needed else Outcome.INFEASIBLE
    return Verdict(what, outcome, "Hardt, Ligett and McSherry 2012", own, needed, _cost(bill), why, details)


def _rows(oracle: Oracle, e: float) -> int:
    if isinstance(e, bool) or not 0 < e < 1:
        raise BadEffort(f"e must lie strictly between 0 and 1. Got {e!r}.")
    if not oracle.rows:
        raise Unsupported("an error that is a fraction of the rows needs their public number: Table(..., rows=...).")
    return oracle.rows


def _outcome(rows: int, needed: int) -> Outcome:
    return Outcome.FEASIBLE if rows >= needed else Outcome.INFEASIBLE


def _strength(bill: Bill) -> float:
    """The epsilon of the exponential mechanism: rho = epsilon^2/8 where the budget is of rho."""
    return math.sqrt(8 * bill.amount) if bill.unit == "rho" else bill.amount


def _cost(bill: Bill) -> Cost | None:
    """None where nothing is charged."""
    if bill.unit == "rho":
        return Cost.concentrated(Fraction(bill.amount))
    return Cost.pure(Fraction(bill.amount)) if bill.unit == "epsilon" else None
