"""`orion policy`: how a running agent's GPUs are shared, to be read and to be changed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli import policy_options as options
from orion.cli import roots
from orion.cli.errors import Refused

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2

app = typer.Typer(no_args_is_help=True, help="Show or change how a GPU is shared.")

Gpu = Annotated[str, typer.Argument(metavar="GPU", help="A UUID, an index or all.")]
Root = Annotated[Path | None, typer.Option(help="The agent's folder.", show_default="/run/orion as root")]


@app.command()
def show(
    gpu: Gpu = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, a member for each GPU.")] = False,
    root: Root = None,
) -> None:
    """Show the policy of each GPU, and what people should know of it."""
    from orion.cli import agents, seating

    gpus = seating.choose_gpus(agents.ask((root or roots.default_root()).absolute()), gpu)
    _print(gpus, as_json)


@app.command(name="set")
def set_(
    gpu: Gpu,
    policy: options.Policy = None,
    max_slowdown: options.MaxSlowdown = None,
    sharing_cost: options.SharingCost = None,
    minimum_share: options.MinimumShare = None,
    window_us: options.Window = None,
    overlap_sms: options.OverlapSms = None,
    long_kernel_us: options.LongKernel = None,
    linger_floor_us: options.LingerFloor = None,
    linger_ceiling_us: options.LingerCeiling = None,
    reef_depth: options.Depth = None,
    orion_2024_sms: options.Sms = None,
    orion_2024_duration_us: options.Duration = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the policies that result as one JSON object.")] = False,
    root: Root = None,
) -> None:
    """Change a GPU's policy; running clients follow at once. What is not given stays.

    [bold]orion policy set 0 --max-slowdown 1.2[/bold]
    """
    from orion.cli import agents, seating

    changes = options.given(
        policy=policy,
        max_slowdown=max_slowdown,
        sharing_cost=sharing_cost,
        minimum_share=minimum_share,
        window_us=window_us,
        overlap_sms=overlap_sms,
        long_kernel_us=long_kernel_us,
        linger_floor_us=linger_floor_us,
        linger_ceiling_us=linger_ceiling_us,
        reef_depth=reef_depth,
        orion_2024_sms=orion_2024_sms,
        orion_2024_duration_us=orion_2024_duration_us,
    )
    if not changes:
        raise Refused("nothing to change was given; `orion policy set --help` lists what can be", status=2)
    with agents.asking((root or roots.default_root()).absolute()) as agent:
        gpus = [agent.set_policy(each.uuid, **changes) for each in seating.choose_gpus(agent.snapshot(), gpu)]
    _print(gpus, as_json)


def _print(gpus: "list[agent_pb2.Gpu]", as_json: bool) -> None:
    from orion.cli import snapshots

    if as_json:
        print(json.dumps({gpu.uuid: snapshots.plain(gpu.settings) for gpu in gpus}))
        return
    for gpu in gpus:
        print(f"GPU {gpu.index}  {gpu.uuid}  {gpu.model}")
        for name, value in snapshots.plain(gpu.settings).items():
            print(f"  {name:<24}{value:g}" if isinstance(value, float) else f"  {name:<24}{value}")
        for condition in gpu.conditions:
            print(f"  ! {condition.message}")
