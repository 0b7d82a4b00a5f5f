"""`orion agent`: run the node agent in the foreground."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from orion.cli import agent_options, gemini_options, parking_options, roots
from orion.cli import policy_options as options
from orion.cli.added_options import adds
from orion.cli.errors import validated
from orion.cli.grpc_logging import log_errors_only


class Gpus(StrEnum):
    """Where the agent looks for GPUs."""

    AUTO = "auto"
    NVML = "nvml"
    SIMULATED = "simulated"
    NONE = "none"


@options.takes_policy(options.ROWS)
@adds("gemini", gemini_options.OF_THE_BACKEND)
@adds("machine", agent_options.OF_A_MACHINE)
@adds("sharing", agent_options.OF_SHARING)
@adds("parking", parking_options.OF_THE_AGENT)
@adds("cluster", agent_options.OF_A_CLUSTER)
def agent(
    *,
    gemini: dict[str, Any],
    root: roots.Root = None,
    gpus: Annotated[
        Gpus,
        typer.Option(help="auto: the GPUs that NVML finds, else simulated ones if ORION_SIM_GPUS is set, else none."),
    ] = Gpus.AUTO,
    simulated: Annotated[bool, typer.Option("--simulated", help="Short for --gpus simulated.")] = False,
    machine: dict[str, Any],
    changes: dict[str, Any],
    sharing: dict[str, Any],
    parking: dict[str, Any],
    cluster: dict[str, Any],
) -> None:
    """Run the node agent. It gives clients slots and grants, watches them and serves metrics.

    `orion run` starts an agent when it needs one. Use this command to see the agent's log, or to run it as a service.
    When the agent ends, clients continue under their last grants, and the next agent takes them over. The policy
    options apply to GPUs that no earlier agent of this folder knew; `orion policy set` changes a policy at any time.

    With --node-name the agent runs in a cluster. It asks the kubelet which container holds which slot, and the operator
    for the grants of the pods. The GPUShares of hp pods set the policies.
    """
    _run({
        **machine,
        **gemini_options.agent_settings(gemini, sharing),
        **parking,
        **cluster,
        "root": (root or roots.default_root()).absolute(),
        "gpus": "simulated" if simulated else gpus.value,
        "policy": changes,
    })  # fmt: skip


def _run(values: dict[str, Any]) -> None:
    log_errors_only()
    from orion.node_agent.serving import run
    from orion.node_agent.settings import AgentSettings

    run(validated(AgentSettings, values))
