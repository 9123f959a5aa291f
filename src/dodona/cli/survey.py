"""What a curator does with a ``survey.toml``: ``dodona schema check``, ``dodona ledger new`` and ``show``.

``dodona ledger SURVEY.TOML`` is short for ``dodona ledger show SURVEY.TOML``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from dodona.cli import show as text
from dodona.cli.questions import Analyst, Effort, Json, RequestId, Survey, as_data, new_name, stating_effort
from dodona.cli.waiting import Wait

if TYPE_CHECKING:
    from dodona.config import Config

_SHOW = "show"


class ShowsByDefault(TyperGroup):
    """Takes anything that is no command of its own for what is to be shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts ``show`` before a file or an option."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [_SHOW, *args]
        return super().parse_args(ctx, args)


ledger_app = typer.Typer(
    cls=ShowsByDefault,
    help="Make, show or verify a ledger. `dodona ledger SURVEY.TOML` shows it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


schema_app = typer.Typer(
    help="Draft and check the survey.toml that states what is public.", no_args_is_help=True, rich_markup_mode=None
)


@schema_app.command()
@stating_effort
def check(
    survey: Survey, effort: Effort, analyst: Analyst = None, request_id: RequestId = None, json: Json = False
) -> None:
    """Say whether configuration, data, schema and ledger fit together; reads no values and spends nothing.

    With an effort, --share 0.01, also count what the schema leaves out: rows with values beyond the bounds, missing or
    not listed, and rows beyond a person's limit. These counts are noisy, and charged to the budget.
    """
    from dodona.config import Config, open_ledger
    from dodona.privacy.ledger.places import ledger_exists, shown

    config = Config.read(survey)
    if any(amount is not None for name, amount in effort.items() if name != "confidence"):
        return _count_losses(config, effort, request_id or new_name(), analyst, json)
    curator = config.open_curator("check", asking=False)
    if ledger_exists(config.ledger):
        with open_ledger(config.ledger) as ledger:
            spent, entries = ledger.spent(), ledger.head()[0]
        kept = f"{shown(config.ledger)}, {entries:,} entries"
    else:
        spent, entries, kept = 0, 0, f"none yet: `dodona ledger new {survey}` makes {shown(config.ledger)}"
    rows = "private" if curator.rows is None else f"{curator.rows:,}"
    if json:
        public = {"name": curator.name, "rows": curator.rows, "neighbours": config.neighbours}
        unit = None if config.unit is None else config.unit.describe()
        return text.dump(
            {
                "fits": True,
                **public,
                "unit": unit,
                "columns": config.schema.describe(),
                "entries": entries,
                "spent": spent,
            }
        )
    pairs = [
        ("data", f"{config.data} as {curator.name}"),
        ("rows", f"{rows} ({config.neighbours} neighbours)"),
        ("protects", "one row" if config.unit is None else str(config.unit)),
        ("columns", f"{len(config.schema)}, all there and of a fitting type"),
        *_others(config),
        ("ledger", kept),
        ("budget", text.spent_line(config.budget, spent)),
    ]
    return text.say(text.facts(pairs) + "\nEverything fits.")


def _others(config: Config) -> list[tuple[str, str]]:
    """The other tables of the file, which fit as well: all of them are opened with the first."""
    private = [(member.name, member.data, member.unit, len(member.schema)) for member in config.members[1:]]
    told = [("and", f"{data} as {name}; {unit}; {columns} columns") for name, data, unit, columns in private]
    tables = config.open_table().tables
    public = {} if tables is None else tables.public
    return told + [("public", f"{name}; {len(table.schema)} columns") for name, table in public.items()]


def _count_losses(config: Config, effort: Effort, name: str, analyst: str | None, json: bool) -> None:
    """What the schema leaves out, as a table."""
    with Wait("counting", name) as wait:
        curator = config.open_curator(analyst, during=wait.during)
        rows = curator.losses(**effort, request_id=name)
    if json:
        return text.dump(as_data(rows))
    cells = [[str(cell) for cell in record] for record in rows]
    text.say(text.table(rows.columns, cells, "llr") + "\n")
    return text.say(text.facts([*text.below(rows), *text.receipt(rows.cost, curator.ledger)]))


def make_ledger(survey: Path) -> None:
    """Make the survey's ledger and say so in words; one that is there stays as it is, and is said to."""
    from dodona.config import Config
    from dodona.errors import LedgerMissing
    from dodona.privacy.ledger.places import shown

    config = Config.read(survey)
    try:
        said, curator = "is there already", config.open_curator("curator")
    except LedgerMissing:
        said, curator = "was made, a new ledger", config.open_curator("curator", create=True)
    text.say(f"{shown(config.ledger)} {said}: {text.spent_line(config.budget, curator.ledger.spent())}")


@ledger_app.command()
def new(survey: Survey) -> None:
    """Make the ledger of a survey: once, for the lifetime of its data. Asking makes none."""
    make_ledger(survey)


@ledger_app.command()
def show(
    survey: Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="Or the .ledger file itself.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check every hash and sum from the first entry on.")] = False,
    start: Annotated[int | None, typer.Option(metavar="N", help="From entry N on.  [default: the latest]")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="K", help="How many lines.")] = 20,
    each: Annotated[bool, typer.Option("--each", help="Each question of a fit or release by itself.")] = False,
    json: Json = False,
) -> None:
    """Show what was asked, by whom, what it cost and what is left; or verify it all, offline."""
    from dodona.config import Config, open_ledger
    from dodona.privacy.ledger import KEYS
    from dodona.privacy.ledger.whole import pure_spent

    path = survey if survey.suffix == ".ledger" else Config.read(survey).ledger
    with open_ledger(path) as book:
        budget = book.genesis.budget
        if verify:
            found = book.verify()
            if json:
                return text.dump({"verified": True, **vars(found)})
            whole = f"{found.entries:,} entries: every hash and every sum holds."
            return text.say(
                text.facts(
                    [
                        ("verified", whole),
                        ("head", found.head),
                        ("budget", text.spent_line(budget, found.spent)),
                        *text.keys_line(book),
                    ]
                )
            )
        spent, (last, head) = book.spent(), book.head()
        shown = text.page(book, start, limit, last, each=each or json)
        if json:
            amounts = {"capacity": budget.capacity, "spent": spent, "left": budget.capacity - spent}
            if budget.keys:
                amounts |= {"key_capacity": budget.key_capacity, "keys_spent": book.spent(KEYS)}
            listed = [vars(entry) for (entry,) in shown]
            return text.dump(
                {"budget": budget.as_dict(), "unit": budget.unit, **amounts, "head": head, "entries": listed}
            )
        text.say(text.history(book, shown, last))
        epsilon, delta = (float(bound) for bound in budget.guarantee(spent, pure_spent(book)))
        whole = f" of {text.short(budget.epsilon)}" if budget.epsilon is not None else ""
        promise = f"so far epsilon {epsilon:.3g}{whole}" + (f" at delta {delta:.3g}" if delta else ", pure")
        known = [("budget", text.spent_line(budget, spent)), *text.keys_line(book)]
        return text.say("\n" + text.facts([*known, ("promise", promise)]))
