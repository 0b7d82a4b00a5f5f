"""`orion agent`: run the node agent in the foreground."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from orion.cli import policy_options as options
from orion.cli import roots
from orion.cli.errors import Refused, wrong_value


class Gpus(StrEnum):
    """Where the agent looks for GPUs."""

    AUTO = "auto"
    NVML = "nvml"
    SIMULATED = "simulated"
    NONE = "none"


def agent(
    root: Annotated[Path | None, typer.Option(help="The agent's folder.", show_default="/run/orion as root")] = None,
    gpus: Annotated[
        Gpus,
        typer.Option(help="auto: NVML's if it finds any, else simulated ones if ORION_SIM_GPUS is set, else none."),
    ] = Gpus.AUTO,
    simulated: Annotated[bool, typer.Option("--simulated", help="Short for --gpus simulated.")] = False,
    metrics_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Metrics for Prometheus, and /healthz, /readyz; port 0: a free one; empty: nowhere.",
        ),
    ] = "127.0.0.1:9435",
    hp_slots: Annotated[int, typer.Option(min=0, max=64, help="hp slots of each GPU, made at the start.")] = 1,
    be_slots: Annotated[int, typer.Option(min=0, max=64, help="be slots of each GPU, made at the start.")] = 8,
    policy: options.Policy = None,
    max_slowdown: options.MaxSlowdown = None,
    sharing_cost: options.SharingCost = None,
    minimum_share: options.MinimumShare = None,
    window_us: options.Window = None,
    overlap_sms: options.OverlapSms = None,
    long_kernel_us: options.LongKernel = None,
    configuration: Annotated[
        Path | None,
        typer.Option(help="The node's configuration file (GPUs, slots); followed. It replaces --hp-slots, --be-slots."),
    ] = None,
    node_name: Annotated[
        str, typer.Option(envvar="NODE_NAME", help="This node in its cluster; empty: the agent is in none.")
    ] = "",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The way to the API server.", show_default="the pod's account, else $KUBECONFIG")
    ] = None,
    pod_resources: Annotated[
        Path, typer.Option(help="The kubelet's socket that tells which container holds which slot.")
    ] = Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    recovery_seconds: Annotated[
        float, typer.Option(help="So long a GPU that was in trouble must be well before pods come; longer each time.")
    ] = 10.0,
    claim_seconds: Annotated[
        float, typer.Option(help="So long a GPU is another device plugin's after that was seen to offer it.")
    ] = 60.0,
) -> None:
    """Run the node agent: it seats clients, grants, watches over them and serves metrics.

    `orion run` starts one by itself; run it here to see its log, or as a service. When it ends, clients go on under
    their last grants, and the next agent takes them over. The policy is that of GPUs which no earlier agent of this
    folder knew; `orion policy set` changes it at any time.

    With a node's name it is the agent in a cluster: it learns from the kubelet whose slots are whose, follows the
    grants of their pods, and hp pods' shares decide the policies.
    """
    _run({
        "root": (root or roots.default_root()).absolute(),
        "gpus": "simulated" if simulated else gpus.value,
        "metrics_address": metrics_address,
        "hp_slots": hp_slots,
        "be_slots": be_slots,
        "policy": options.given(
            policy=policy, max_slowdown=max_slowdown, sharing_cost=sharing_cost, minimum_share=minimum_share,
            window_us=window_us, overlap_sms=overlap_sms, long_kernel_us=long_kernel_us,
        ),
        "configuration": configuration,
        "node_name": node_name,
        "kubeconfig": kubeconfig,
        "pod_resources": pod_resources,
        "recovery_seconds": recovery_seconds,
        "claim_seconds": claim_seconds,
    })  # fmt: skip


def _run(told: dict[str, Any]) -> None:
    from pydantic import ValidationError

    from orion.node_agent.errors import AgentError
    from orion.node_agent.serving import run
    from orion.node_agent.settings import AgentSettings

    try:
        settings = AgentSettings.model_validate(told)
    except ValidationError as error:
        raise wrong_value(error) from error
    try:
        run(settings)
    except (AgentError, OSError) as error:
        raise Refused(str(error)) from error
