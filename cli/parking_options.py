"""Options about programs that leave a GPU's memory for others: those of the agent, and those of `orion run`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orion.cli import sizes
from orion.errors import Invalid

_HP_WAIT_SECONDS = 30.0


OF_THE_AGENT = {
    "parking_reserve_mib": Annotated[
        int | None,
        typer.Option(
            help="MiB that are kept free for hp at least, where be slots can leave the GPU's memory. The agent learns "
            "how much more hp needs.",
            show_default="512",
        ),
    ],
    "parking_margin_mib": Annotated[
        int | None,
        typer.Option(help="MiB that must be free besides before a slot comes back, and 2 % of it.", show_default="256"),
    ],
    "parking_stay_factor": Annotated[
        float | None,
        typer.Option(
            help="A slot that has come back stays so many times as long as leaving and coming back take.",
            show_default="20",
        ),
    ],
    "parking_answer_seconds": Annotated[
        float | None,
        typer.Option(help="Pass over a process that has not answered for so long.", show_default="15"),
    ],
    "parking_retry_seconds": Annotated[
        float | None, typer.Option(help="Ask a slot again so long after it has refused.", show_default="60")
    ],
    "cgroups": Annotated[
        Path | None,
        typer.Option(
            help="Where the machine's cgroups are mounted: a slot leaves only if host memory can hold what it has on "
            "the GPU. With simulated GPUs nothing moves there, and host memory is looked at only if this is given.",
            show_default="/sys/fs/cgroup",
        ),
    ],
}
OF_RUN = {
    "park": Annotated[
        bool | None,
        typer.Option(
            "--park",
            help="be: may leave the GPU's memory, and wait, while others need the room. Its memory moves to the host.",
        ),
    ],
    "unified": Annotated[
        bool | None,
        typer.Option(
            "--unified",
            help="be: its device memory becomes managed memory, which the driver moves page by page. With --memory; "
            "beyond the GPU's memory on the simulated GPU only.",
        ),
    ],
    "memory_request": Annotated[
        int | None,
        typer.Option(
            parser=sizes.of_option,
            metavar="SIZE",
            help="Device memory that it is sure of; below --memory only with --park or --unified, or for hp.",
            show_default="none",
        ),
    ],
    "memory_wait": Annotated[
        float | None,
        typer.Option(
            min=0,
            max=3600,
            metavar="SECONDS",
            help="hp: how long an allocation waits for others to leave a full GPU. 0: it fails at once.",
            show_default="30",
        ),
    ],
}


def for_run(given: dict[str, Any], is_hp: bool, limit: int | None, has_rule: bool) -> dict[str, Any]:
    """Return the memory options of `orion run` as `AgentClient.open_slot` takes them.

    Raises:
        Invalid: an option does not fit the priority or another option.
    """
    request, parks, unified = given.get("memory_request"), bool(given.get("park")), bool(given.get("unified"))
    for name in given if has_rule else ():
        raise Invalid(f"--{name.replace('_', '-')} cannot be given with --id: the rule decides the memory")
    if has_rule:
        return {}
    if is_hp and parks:
        raise Invalid("--park is for --priority be: hp gets the room that others make")
    if is_hp and unified:
        raise Invalid("--unified is for --priority be: hp's memory stays on the GPU")
    if parks and unified:
        raise Invalid("--park and --unified exclude each other: the driver does not copy managed memory out")
    if unified and not limit:
        raise Invalid("--unified needs --memory: the GPU does not bound memory that moves")
    if not is_hp and "memory_wait" in given:
        raise Invalid("--memory-wait is for --priority hp: only hp waits for others to leave the GPU's memory")
    if request and limit and request > limit:
        raise Invalid("--memory-request is above --memory: lower the request or raise the limit")
    if request and limit and request < limit and not is_hp and not (parks or unified):
        raise Invalid(
            "--memory-request below --memory borrows memory, which must be given back: add --park or --unified"
        )
    wait = given.get("memory_wait", _HP_WAIT_SECONDS) if is_hp else 0.0
    return {
        "memory_request_bytes": request or 0,
        "memory_parks": parks,
        "memory_unified": unified,
        "memory_wait_ms": round(wait * 1_000),
    }
