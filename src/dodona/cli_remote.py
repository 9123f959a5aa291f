"""``dodona price``, ``ask`` and ``sql`` with ``--server``: the same questions to a dataset behind a server."""

from __future__ import annotations

import json as plain_json
import sys
from pathlib import Path
from typing import Any

from dodona.answer import Bill
from dodona.errors import Refused
from dodona.trust.remote import Remote, connect


def opened(server: str, dataset: Path, key_file: Path | None, analyst: str | None = None) -> Remote:
    """The oracle behind the server; a key never stands on a command line, where other users would see it."""
    if analyst is not None:
        raise Refused("with --server your key says who asks: leave out --analyst.")
    try:
        key = None if key_file is None else key_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise Refused(f"the key's file must be readable. Got {str(key_file)!r}.") from None
    return connect(server, key=key, dataset=str(dataset))


def price(oracle: Remote, question: str, effort: dict[str, Any], json: bool) -> None:
    """What it would cost there."""
    from dodona.show import accuracy, cost, facts, paint, say
    from dodona.trust.wire import price_to_json

    offer = oracle.price(question, **effort)
    if json:
        return _dump({**price_to_json(offer), "question": question})
    verdict = "Affordable; nothing was spent." if offer.affordable else "NOT affordable with what is left to you."
    pairs = [("would cost", cost(offer.cost)), ("accuracy", accuracy(offer)), ("noise", offer.cost.mechanism)]
    return say(facts(pairs) + "\n" + paint(verdict, "bold"))


def ask(oracle: Remote, question: str, effort: dict[str, Any], json: bool) -> None:
    """One answer from there."""
    from dodona.show import clean, facts, number, paint, say, sure

    answer = oracle.ask(question, **effort)
    rows, total, margin = answer.rows, float(answer.total), float(answer.margin)
    if json:
        known = {"question": question, "total": total, "total_margin": margin, "confidence": answer.confidence}
        per_row = {} if rows is None else {"mean": answer.mean, "mean_margin": margin / max(rows, 1)}
        return _dump({**known, **per_row, "rows": rows, "cost": vars(answer.cost)})
    pairs = [] if rows is None else [("mean", number(total / max(rows, 1), margin / max(rows, 1)))]
    pairs += [("total", number(total, margin) + ("" if rows is None else f" over {rows:,} rows"))]
    shown = [(name, paint(value, "bold")) for name, value in pairs]
    return say(f"{clean(question)}  ({sure(answer.confidence)} sure)\n" + facts([*shown, *_receipt(answer.cost)]))


def sql(oracle: Remote, statement: str, effort: dict[str, Any], json: bool) -> None:
    """A SELECT's table from there."""
    from dodona.show import facts, grid, say, sure

    rows = oracle.sql(statement, **effort)
    if json:
        known = {"columns": rows.columns, "records": rows.to_dicts(), "confidence": rows.confidence}
        return _dump({**known, "cost": vars(rows.cost)})
    say(grid(rows))
    return say("\n" + facts([("error bars", f"each {sure(rows.confidence)} sure"), *_receipt(rows.cost)]))


def _receipt(bill: Bill) -> list[tuple[str, str]]:
    from dodona.show import cost, short

    place = f"entry {bill.seq}, {str(bill.hash)[:12]} ({bill.mechanism}; {bill.neighbours} neighbours)"
    return [
        ("cost", cost(bill)),
        ("left", f"{bill.unit} {short(bill.left)} of the lifetime budget"),
        ("receipt", place),
    ]


def _dump(data: dict[str, Any]) -> None:
    sys.stdout.write(plain_json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
