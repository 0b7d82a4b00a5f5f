"""`orion agent`: run the node agent in the foreground."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from orion.cli import gemini_options, parking_options, roots
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
@adds("parking", parking_options.OF_THE_AGENT)
def agent(
    *,
    gemini: dict[str, Any],
    root: Annotated[Path | None, typer.Option(help="The agent's folder.", show_default="/run/orion as root")] = None,
    gpus: Annotated[
        Gpus,
        typer.Option(help="auto: the GPUs that NVML finds, else simulated ones if ORION_SIM_GPUS is set, else none."),
    ] = Gpus.AUTO,
    simulated: Annotated[bool, typer.Option("--simulated", help="Short for --gpus simulated.")] = False,
    metrics_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to serve /metrics, /healthz and /readyz. Port 0: any free port. Empty: do not serve.",
        ),
    ] = "127.0.0.1:9435",
    hp_slots: Annotated[int, typer.Option(min=0, max=64, help="hp slots of each GPU.")] = 1,
    be_slots: Annotated[int, typer.Option(min=0, max=64, help="be slots of each GPU.")] = 8,
    changes: dict[str, Any],
    configuration: Annotated[
        Path | None,
        typer.Option(
            help="The node's configuration file, which replaces --hp-slots and --be-slots. The agent follows changes."
        ),
    ] = None,
    resource_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Gemini's resource file, or a folder with one for each GPU: requests and limits by id, for "
            "`orion run --id`. The agent follows changes.",
        ),
    ] = None,
    longest_turn_ms: Annotated[
        float | None,
        typer.Option(
            help="The turn of the be slot that is due the most, 1 to 100. Long turns lose less time, and the shares "
            "of a second vary more.",
            show_default="so long that all slots have a turn in about 20 ms",
        ),
    ] = None,
    shortest_turn_ms: Annotated[
        float | None,
        typer.Option(
            help="No turn of a be slot is planned shorter, 0.5 to 50. A slot that is due less has turns less often.",
            show_default="0.8",
        ),
    ] = None,
    parking: dict[str, Any],
    node_name: Annotated[
        str,
        typer.Option(
            envvar="NODE_NAME", help="This node's name in its cluster. Empty: the agent runs outside a cluster."
        ),
    ] = "",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The kubeconfig for the API server.", show_default="the pod's account, else $KUBECONFIG"),
    ] = None,
    operator: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="The operator's Service, and the ConfigMap with its certificates; needed with --node-name.",
        ),
    ] = "",
    operator_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The operator's address.", show_default="that of its Service")
    ] = "",
    operator_token: Annotated[
        Path, typer.Option(help="The file with this agent's token for the operator, read at each connection.")
    ] = Path("/var/run/secrets/orion.gpu/operator/token"),
    pod_resources: Annotated[
        Path, typer.Option(help="The kubelet's PodResources socket, which says which container holds which slot.")
    ] = Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    recovery_seconds: Annotated[
        float,
        typer.Option(help="How long a GPU must be healthy again before new pods get it. Grows with each failure."),
    ] = 10.0,
    claim_seconds: Annotated[
        float,
        typer.Option(help="Advertise no slots of a GPU for this long after another device plugin last advertised it."),
    ] = 60.0,
    driver_memory_limits: Annotated[
        bool,
        typer.Option(
            "--driver-memory-limits",
            help="The driver, too, limits the GPU memory of containers (driver 615 and later; not tried on a GPU yet).",
        ),
    ] = False,
    by_node: Annotated[
        bool,
        typer.Option(
            "--by-node",
            help="The node's label orion.gpu/allocation says who gives slots: device-plugin or dra.",
        ),
    ] = False,
    handover_seconds: Annotated[
        float, typer.Option(help="With --by-node: the program changes once nobody has held a slot for this long.")
    ] = 10.0,
) -> None:
    """Run the node agent. It gives clients slots and grants, watches them and serves metrics.

    `orion run` starts an agent when it needs one. Use this command to see the agent's log, or to run it as a service.
    When the agent ends, clients continue under their last grants, and the next agent takes them over. The policy
    options apply to GPUs that no earlier agent of this folder knew; `orion policy set` changes a policy at any time.

    With --node-name the agent runs in a cluster. It asks the kubelet which container holds which slot, and the operator
    for the grants of the pods. The GPUShares of hp pods set the policies.
    """
    own = {
        "resource_config": resource_config,
        "longest_turn_ms": longest_turn_ms,
        "shortest_turn_ms": shortest_turn_ms,
    }
    _run({
        **gemini_options.agent_settings(gemini, own),
        **parking,
        "root": (root or roots.default_root()).absolute(),
        "gpus": "simulated" if simulated else gpus.value,
        "metrics_address": metrics_address,
        "hp_slots": hp_slots,
        "be_slots": be_slots,
        "policy": changes,
        "configuration": configuration,
        "node_name": node_name,
        "kubeconfig": kubeconfig,
        "operator": operator,
        "operator_address": operator_address,
        "operator_token": operator_token,
        "pod_resources": pod_resources,
        "recovery_seconds": recovery_seconds,
        "claim_seconds": claim_seconds,
        "driver_memory_limits": driver_memory_limits,
        "by_node": by_node,
        "handover_seconds": handover_seconds,
    })  # fmt: skip


def _run(values: dict[str, Any]) -> None:
    log_errors_only()
    from orion.node_agent.serving import run
    from orion.node_agent.settings import AgentSettings

    run(validated(AgentSettings, values))
