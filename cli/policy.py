"""`orion policy`: shows and changes how a running agent's GPUs are shared."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli import policy_options as options
from orion.cli import roots
from orion.errors import Invalid

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2

app = typer.Typer(no_args_is_help=True, help="Show or change how a GPU is shared.")

Gpu = Annotated[str, typer.Argument(metavar="GPU", help="A UUID, an index or all.")]


@app.command()
def show(
    gpu: Gpu = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, a member for each GPU.")] = False,
    root: roots.Root = None,
) -> None:
    """Show the policy of each GPU and its warnings."""
    from orion.cli import agents, slot_choice

    gpus = slot_choice.choose_gpus(agents.ask((root or roots.default_root()).absolute()), gpu, "GPU")
    _print(gpus, as_json)


@app.command(name="set")
@options.takes_policy(options.ROWS)
def set_(
    gpu: Gpu,
    *,
    changes: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Print the new policies as one JSON object.")] = False,
    root: roots.Root = None,
) -> None:
    """Change a GPU's policy. Running clients follow at once. Options that you do not give stay as they are.

    [bold]orion policy set 0 --max-slowdown 1.2[/bold]
    """
    from orion.cli import agents, slot_choice

    if not changes:
        raise Invalid("there is nothing to change: give an option that `orion policy set --help` lists")
    with agents.asking((root or roots.default_root()).absolute()) as agent:
        gpus = [
            agent.set_policy(each.uuid, **changes) for each in slot_choice.choose_gpus(agent.snapshot(), gpu, "GPU")
        ]
    _print(gpus, as_json)


def _print(gpus: "list[agent_pb2.Gpu]", as_json: bool) -> None:
    from orion.cli import snapshots

    if as_json:
        print(json.dumps({gpu.uuid: snapshots.policy(gpu.settings) for gpu in gpus}))
        return
    for gpu in gpus:
        print(f"GPU {gpu.index}  {gpu.uuid}  {gpu.model}")
        for name, value in snapshots.policy(gpu.settings).items():
            print(f"  {name:<24}{value:g}" if isinstance(value, float) else f"  {name:<24}{value}")
        for condition in gpu.conditions:
            print(f"  ! {condition.message}")
