"""The options of `orion agent`, in groups. Each has the name, and the default, of a field of the agent's settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orion.cli.added_options import Defaulting

OF_A_MACHINE: dict[str, Any] = {
    "metrics_address": Defaulting(
        Annotated[
            str,
            typer.Option(
                metavar="HOST:PORT",
                help="Where to serve /metrics, /healthz and /readyz. Port 0: any free port. Empty: do not serve.",
            ),
        ],
        "127.0.0.1:9435",
    ),
    "hp_slots": Defaulting(Annotated[int, typer.Option(min=0, max=64, help="hp slots of each GPU.")], 1),
    "be_slots": Defaulting(Annotated[int, typer.Option(min=0, max=64, help="be slots of each GPU.")], 8),
}
OF_SHARING: dict[str, Any] = {
    "configuration": Annotated[
        Path | None,
        typer.Option(
            help="The node's configuration file, which replaces --hp-slots and --be-slots. The agent follows changes."
        ),
    ],
    "resource_config": Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Gemini's resource file, or a folder with one for each GPU: requests and limits by id, for "
            "`orion run --id`. The agent follows changes.",
        ),
    ],
    "longest_turn_ms": Annotated[
        float | None,
        typer.Option(
            help="The turn of the be slot that is due the most, 1 to 100. Long turns lose less time, and the shares "
            "of a second vary more.",
            show_default="so long that all slots have a turn in about 20 ms, under MPS 28 ms",
        ),
    ],
    "shortest_turn_ms": Annotated[
        float | None,
        typer.Option(
            help="No turn of a be slot is planned shorter, 0.5 to 50. A slot that is due less has turns less often.",
            show_default="0.8",
        ),
    ],
}
OF_A_CLUSTER: dict[str, Any] = {
    "node_name": Defaulting(
        Annotated[
            str,
            typer.Option(
                envvar="NODE_NAME", help="This node's name in its cluster. Empty: the agent runs outside a cluster."
            ),
        ],
        "",
    ),
    "kubeconfig": Annotated[
        Path | None,
        typer.Option(help="The kubeconfig for the API server.", show_default="the pod's account, else $KUBECONFIG"),
    ],
    "operator": Defaulting(
        Annotated[
            str,
            typer.Option(
                metavar="NAMESPACE/NAME",
                help="The operator's Service, and the ConfigMap with its certificates; needed with --node-name.",
            ),
        ],
        "",
    ),
    "operator_address": Defaulting(
        Annotated[
            str, typer.Option(metavar="HOST:PORT", help="The operator's address.", show_default="that of its Service")
        ],
        "",
    ),
    "operator_token": Defaulting(
        Annotated[
            Path, typer.Option(help="The file with this agent's token for the operator, read at each connection.")
        ],
        Path("/var/run/secrets/orion.gpu/operator/token"),
    ),
    "pod_resources": Defaulting(
        Annotated[
            Path, typer.Option(help="The kubelet's PodResources socket, which says which container holds which slot.")
        ],
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    ),
    "recovery_seconds": Defaulting(
        Annotated[
            float,
            typer.Option(help="How long a GPU must be healthy again before new pods get it. Grows with each failure."),
        ],
        10.0,
    ),
    "claim_seconds": Defaulting(
        Annotated[
            float,
            typer.Option(
                help="Advertise no slots of a GPU for this long after another device plugin last advertised it."
            ),
        ],
        60.0,
    ),
    "driver_memory_limits": Defaulting(
        Annotated[
            bool,
            typer.Option(
                "--driver-memory-limits",
                help="The driver, too, limits the GPU memory of containers (driver 615 and later; not tried on a GPU "
                "yet).",
            ),
        ],
        False,
    ),
    "by_node": Defaulting(
        Annotated[
            bool,
            typer.Option(
                "--by-node",
                help="The node's label orion.gpu/allocation says who gives slots: device-plugin or dra.",
            ),
        ],
        False,
    ),
    "handover_seconds": Defaulting(
        Annotated[
            float, typer.Option(help="With --by-node: the program changes once nobody has held a slot for this long.")
        ],
        10.0,
    ),
}
