"""The page of a plan: the answer, pictures, tables, what does not fit, and what the plan assumes."""

from collections.abc import Sequence

from orion.planning.fleet.fleets import RESTART_H, Fleet
from orion.simulation.report.page import Picture, Table, report

from . import pictures, tables
from .answer import Answer, sentence


def page(name: str, answers: Sequence[Answer], changes: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        name: the fleet's name.
        answers: the answer for the fleet; and, with `--what-if`, the answer for the changed fleet.
        changes: the changes.
    """
    found = answers[0]
    title = f"Plan of {name}"
    text = sentence(found)
    if len(answers) > 1:
        text += f" With {', '.join(changes)}: {sentence(answers[1])}"
    shown = [tables.compared(answers, changes)] if len(answers) > 1 else []
    for at, each in enumerate(answers):
        of = "" if len(answers) == 1 else (" (as it is)", f" (with {', '.join(changes)})")[at]
        shown += [
            Table(table.title + of, table.columns, table.rows)
            for table in (tables.services(each), tables.jobs(each), tables.hours(each), _unplaced(each))
            if table.rows
        ]
    return report(title, text, [picture for each in answers for picture in _pictures(each)], shown, assumptions(found))


def _pictures(found: Answer) -> list[Picture]:
    drawn = [
        Picture(
            "Who runs where", pictures.who_runs_where(found),
            "Each row is a GPU. Its lower half shows the service, which has priority; its upper half best-effort work.",
        ),
        Picture(
            "Use over time", pictures.use_over_time(found),
            "GPU time in use, stacked. The dashed line is the number of GPUs if each workload has GPUs of its own.",
        ),
    ]  # fmt: skip
    if any(each.p99_ms for each in found.shared):
        caption = "99 of 100 requests are faster. The red line is the objective."
        drawn.append(Picture("What users feel", pictures.what_users_feel(found), caption))
    return drawn


def _unplaced(found: Answer) -> Table:
    return Table("What does not fit", ["name", "reason, and what would help"],
                 [[each.name, each.reason] for each in found.plan.unplaced])  # fmt: skip


def assumptions(found: Answer) -> list[str]:
    """Return what the plan assumes, in sentences."""
    fleet = found.plan.fleet
    return [
        "Requests of a service come at random (Poisson) and are split evenly over its GPUs. Each request has the GPU's "
        "services queue for itself and takes the same time; there are no batches of requests.",
        "An objective holds if 99 of 100 requests are faster, in each hour.",
        _beneath(fleet),
        *_without_be(fleet),
        f"A request may begin {fleet.switch_s * 1e3:g} ms late if best-effort work must leave the GPU first.",
        "A training job holds all its GPUs at once and runs as fast as on the slowest of them. It keeps its GPUs, "
        f"unless a move saves a GPU; a move costs {RESTART_H * 3600:g} s.",
        "One best-effort job runs on a GPU at a time. A batch can use any number of GPUs in its window.",
        *_over_midnight(fleet),
        _layout(found),
        "Networks, disks and failures are not modelled.",
    ]


def _beneath(fleet: Fleet) -> str:
    return (
        "Beneath a service, best-effort work runs at the speed 1 - busy - busy periods x switch, with a switch of "
        f"{fleet.switch_s * 1e3:g} ms; busy is rate x time of a request, and busy periods come at rate x (1 - busy)."
    )


def _without_be(fleet: Fleet) -> list[str]:
    names = [each.name for each in fleet.services if not each.has_be]
    return [f"No best-effort work runs beneath {', '.join(names)}: the switch would cost GPUs."] if names else []


def _over_midnight(fleet: Fleet) -> list[str]:
    names = [each.name for each in fleet.batches if each.closed(fleet.hours)]
    return [f"The day repeats: the window of {', '.join(names)} goes on after midnight at hour 0."] if names else []


def _layout(found: Answer) -> str:
    if found.plan.layout == "steady":
        return "Each service keeps its GPUs all day, as many as its busiest hour needs."
    return "Services change GPUs from hour to hour, because that saves GPUs; loading a model takes no time here."
