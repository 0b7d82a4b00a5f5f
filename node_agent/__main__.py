"""`python -m orion.node_agent`: the agent without the rest of the command line."""

import argparse
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from orion.errors import OrionError
from orion.node_agent.serving import run
from orion.node_agent.settings import AgentSettings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="orion.node_agent", description="The node agent: shares this machine's GPUs.")
    fields = AgentSettings.model_fields
    parser.add_argument("--root", type=Path, default=fields["root"].default, help="directory of sockets and state")
    parser.add_argument("--gpus", choices=["auto", "nvml", "simulated", "none"], default="auto")
    parser.add_argument("--simulated-library", type=Path, default=None, help="the simulated driver, libcuda.so.1")
    parser.add_argument("--metrics-address", default=fields["metrics_address"].default, help="HOST:PORT; empty: off")
    parser.add_argument("--hp-slots", type=int, default=fields["hp_slots"].default)
    parser.add_argument("--be-slots", type=int, default=fields["be_slots"].default)
    parser.add_argument("--configuration", type=Path, default=None, help="the node's configuration file")
    parser.add_argument("--resource-config", type=Path, default=None, help="Gemini's resource file or folder")
    parser.add_argument("--longest-turn-ms", type=float, default=None)
    parser.add_argument("--shortest-turn-ms", type=float, default=fields["shortest_turn_ms"].default)
    parser.add_argument("--parking-reserve-mib", type=int, default=fields["parking_reserve_mib"].default)
    parser.add_argument("--parking-margin-mib", type=int, default=fields["parking_margin_mib"].default)
    parser.add_argument("--parking-stay-factor", type=float, default=fields["parking_stay_factor"].default)
    parser.add_argument("--parking-answer-seconds", type=float, default=fields["parking_answer_seconds"].default)
    parser.add_argument("--parking-retry-seconds", type=float, default=fields["parking_retry_seconds"].default)
    parser.add_argument("--cgroups", type=Path, default=None, help="where the machine's cgroups are mounted")
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""), help="node's name; empty: no cluster")
    parser.add_argument("--kubeconfig", type=Path, default=None, help="access to the API server")
    parser.add_argument("--operator", default="", help="NAMESPACE/NAME of the operator's Service and ConfigMap")
    parser.add_argument("--operator-address", default="", help="HOST:PORT in place of the Service's")
    parser.add_argument("--operator-token", type=Path, default=fields["operator_token"].default)
    parser.add_argument("--pod-resources", type=Path, default=fields["pod_resources"].default, help="kubelet's socket")
    parser.add_argument("--recovery-seconds", type=float, default=fields["recovery_seconds"].default)
    parser.add_argument("--claim-seconds", type=float, default=fields["claim_seconds"].default)
    parser.add_argument("--driver-memory-limits", action="store_true", help="the driver limits containers' memory, too")
    return parser.parse_args()


def main() -> int:
    """Run until SIGTERM or SIGINT; return the exit status."""
    try:
        settings = AgentSettings(**vars(_arguments()))
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{'-'.join(map(str, first['loc'])).replace('_', '-')}: " if first["loc"] else ""
        print(f"{flag}{first['msg'].removeprefix('Value error, ')}", file=sys.stderr)
        return 2
    try:
        run(settings)
    except (OrionError, OSError) as error:
        print(f"orion agent: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
