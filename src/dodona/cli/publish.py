"""``dodona release`` and ``dodona synopsis``: publish once, then ask, tabulate and draw made-up rows for nothing.

Which releases there are, and what each wants to be told, comes from their registry: a new one is here by being there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dodona.cli import show
from dodona.cli.questions import (
    Analyst,
    Csv,
    Form,
    Json,
    Markdown,
    Output,
    RequestId,
    answered,
    as_data,
    new_name,
    require_free,
    shown_table,
    told,
)
from dodona.cli.waiting import Wait
from dodona.errors import Refused

if TYPE_CHECKING:
    from dodona.oracles.synopsis import Synopsis

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of it: width=2, columns=a,b.")
]
Published = Annotated[Path, typer.Argument(metavar="FILE", help="What `dodona release` or save() wrote.")]
Rows = Annotated[int | None, typer.Option("--rows", help="How many made-up rows.  [default: as many as there are]")]

synopsis_app = typer.Typer(
    help="Ask what is published: free, for ever, without the data.", no_args_is_help=True, rich_markup_mode=None
)


def read_settings(kind: str, stated: list[str] | None) -> tuple[Any, dict[str, Any]]:
    """The release of this name, and its settings as they are written on a command line."""
    from dodona.release.registry import find_release

    found = find_release(kind)
    known = {setting.name: setting for setting in found.settings}
    given = dict(line.partition("=")[::2] for line in stated or ())
    found.checked(given)
    return found, {name: known[name].read(text) for name, text in given.items()}


def release(
    survey: Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="What the curator states about the table.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which release: conjunctions, intervals, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to save it: age.synopsis.")],
    settings: Settings = None,
    share: Annotated[str | None, typer.Option(metavar="S", help="Fraction of the whole budget: 0.05 or 1/20.")] = None,
    epsilon: Annotated[str | None, typer.Option(metavar="E", help="Spend this epsilon (pure noise).")] = None,
    rho: Annotated[str | None, typer.Option(metavar="R", help="Spend this rho (Gaussian noise).")] = None,
    synthetic: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also made-up rows drawn from it: .csv or .parquet.")
    ] = None,
    rows: Rows = None,
    analyst: Analyst = None,
    request_id: RequestId = None,
) -> None:
    """Publish once, charged to the budget; questions to what is published are free. `dodona plan release` foretells."""
    from dodona.config import Config
    from dodona.oracles.effort import Effort
    from dodona.oracles.fronts import Counted

    found, read = read_settings(kind, settings)
    for place in (output, synthetic):
        if place is not None:
            require_free(place)
    if synthetic is not None:
        _writer(synthetic)
        edges = next((setting for setting in found.settings if setting.kind == "edges"), None)
        if edges is not None:
            read.setdefault(edges.name, BUCKETS)
    effort = Effort.divisible(free=False, share=share, epsilon=epsilon, rho=rho)
    config, name = Config.read(survey), request_id or new_name(kind)
    most = 1.0 if effort.kind == "none" else effort.most(config.budget) / config.budget.capacity
    with Wait(f"releasing {kind}", name, many=True, most=most) as wait:
        curator = config.open_curator(analyst, during=wait.during)
        made: Synopsis = found.make(Counted(curator, name, wait.answered), **read, effort=effort)
    made.save(output)
    lines = [("published", str(output)), *about(made), ("cost", show.cost(made.header.cost))]
    if synthetic is not None:
        lines.append(("made-up rows", draw(made, synthetic, rows)))
    lines.append(("budget", show.spent_line(curator.budget, curator.ledger.spent())))
    show.say(show.facts(lines))


@synopsis_app.command("about")
def describe(published: Published) -> None:
    """Say what it answers, how well, and what it cost."""
    made = _load(published)
    show.say(show.facts([*about(made), ("cost", show.cost(made.header.cost))]))


@synopsis_app.command("ask")
def ask(published: Published, question: str, json: Json = False, csv: Csv = False, output: Output = None) -> None:
    """Answer a row expression from it."""
    form = Form.of(json, csv, False, output)
    answer = _load(published).ask(question)
    form.hand_over(answer, answered(question, answer), told(question, answer, [("cost", str(answer.cost))]))


@synopsis_app.command("sql")
def sql(
    published: Published,
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="SELECT ... FROM survey ...")],
    json: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    output: Output = None,
) -> None:
    """Answer a SELECT from it."""
    form = Form.of(json, csv, markdown, output)
    table = _load(published).sql(statement)
    form.hand_over(table, as_data(table), shown_table(table, [("cost", str(table.cost))]))


@synopsis_app.command("sample")
def sample(
    published: Published,
    place: Annotated[Path, typer.Argument(metavar="OUT", help="Where the rows go: .csv or .parquet.")],
    rows: Rows = None,
) -> None:
    """Draw made-up rows from it."""
    require_free(place)
    _writer(place)
    show.say(draw(_load(published), place, rows))


BUCKETS = 8
"""Into how many buckets number columns are cut for made-up rows, unless it is said."""


def about(made: Synopsis) -> list[tuple[str, str]]:
    """What it answers, how well, and what it says nothing of."""
    header = made.header
    out = header.notes.get("left_out")
    silent = [] if not out else [("left out", f"{', '.join(map(str, out))}: nothing is published of these columns")]
    known = [("answers", header.about), ("accuracy", header.accuracy), ("method", header.method), *silent]
    return [(name, show.clean(text)) for name, text in known]


def draw(made: Synopsis, place: Path, rows: int | None) -> str:
    """Writes made-up rows, and says what it wrote."""
    count = made.rows if rows is None else rows
    if count is None:
        raise Refused("how many rows there are is private: say how many to make up, --rows N.")
    sample = made.sample(count)
    _writer(place)(sample, place)
    return f"{place}: {count:,} rows of {', '.join(sample)}, drawn from what is published"


def _writer(place: Path) -> Any:
    if place.suffix.lower() == ".csv":
        return lambda sample, path: sample.to_csv(path)
    if place.suffix.lower() == ".parquet":
        try:
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise Refused("writing Parquet needs pyarrow: pip install 'dodona[arrow]'; or name a .csv file.") from None
        return lambda sample, path: parquet.write_table(sample.to_arrow(), path)
    raise Refused(f"made-up rows go to a .csv or .parquet file. Got {str(place)!r}.")


def _load(published: Path) -> Synopsis:
    from dodona.synopses import load

    return load(published)
