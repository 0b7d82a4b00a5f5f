"""`orion plan`: one plan over services, batches and training; orion.planning.fleet decides."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.errors import Invalid

if TYPE_CHECKING:
    from orion.simulation.fleet.answer import Answer


class Ask(StrEnum):
    """What the plan looks for."""

    GPUS = "gpus"
    FINISH = "finish"


def plan(
    fleet: Annotated[Path, typer.Argument(metavar="FLEET.yaml", help="Services, batches, training, GPUs.")],
    ask: Annotated[
        Ask, typer.Option(metavar="gpus|finish", help="Find the number of GPUs, or when jobs end on gpus.atMost GPUs.")
    ] = Ask.GPUS,
    what_if: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="Change a value, such as search.rate*1.5, and compare. Can be repeated."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan a fleet: how many GPUs it needs if training and batches run beneath services, and what users will feel.

    [bold]orion plan examples/fleet.yaml --html plan.html[/bold]
    """
    if html is not None:
        import jinja2  # noqa: F401 - if one is missing, report that before the search
        import matplotlib  # noqa: F401
    from orion.simulation.fleet import answer, changes, files

    fields = files.parse(fleet)
    asked = [files.read(fleet, fields)]
    if what_if:
        asked.append(changes.read(fleet, fields, what_if))
    if ask is Ask.FINISH and any(each.at_most is None for each, _ in asked):
        raise Invalid(f"--ask finish needs the number of GPUs: give gpus.atMost in {fleet}")
    answers = [answer.answer(each, written.seed, is_finish=ask is Ask.FINISH) for each, written in asked]
    if html is not None:
        from orion.simulation.fleet import html as page
        from orion.simulation.whole_files import write

        write(html, [page.page(fleet.name, answers, what_if or [])])
    if as_json:
        report = answer.plain(answers[0])
        report["what_if"] = {"changes": what_if, **answer.plain(answers[1])} if what_if else None
        print(json.dumps(report))
        return
    _print(fleet, answers, what_if or [])
    if html is not None:
        typer.echo(f"wrote {html}")


def _print(path: Path, answers: "list[Answer]", changes: list[str]) -> None:
    from rich.console import Console

    from orion.simulation.fleet import answer, tables

    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, 110)
    titles = [str(path), f"{path} with {', '.join(changes)}"] if changes else [str(path)]
    for title, found in zip(titles, answers, strict=True):
        console.print(f"{title}: [bold]{answer.sentence(found)}[/bold]" if len(answers) > 1 else
                      f"[bold]{answer.sentence(found)}[/bold]")  # fmt: skip
    if len(answers) > 1:
        _table(console, tables.compared(answers, changes))
        return
    for table in (tables.services(answers[0]), tables.jobs(answers[0]), tables.hours(answers[0])):
        if table.rows:
            console.print()
            _table(console, table)
    if answers[0].plan.unplaced:
        console.print("\nnot placed:")
    for each in answers[0].plan.unplaced:
        console.print(f"  {each.name}: {each.reason}", markup=False)


def _table(console: Any, table: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for at, title in enumerate(table.columns):
        is_text = at == 0 or all(not row[at][:1].isdigit() for row in table.rows)
        shown.add_column(title, justify="left" if is_text else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    console.print(shown)
