"""Runs Helm, which renders and installs the chart. It is found like the cluster's binaries, or built once."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed import binaries, go_modules
from testbed.binaries import HELM, Say
from testbed.errors import Failed

CHART = Path(__file__).resolve().parents[1] / "charts" / "orion"


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr)


def program(say: Say = _to_standard_error) -> Path:
    """Return Helm of the version that go/helm/go.mod pins.

    Raises:
        Missing: it is not on this machine and cannot be built.
    """
    go_modules.build_missing(say, [HELM])
    found = binaries.find(HELM, lambda _: None)
    assert found is not None
    return found


def run(*arguments: str, kubeconfig: Path | None = None, given: str = "", patience: float = 120) -> str:
    """Run Helm without the user's settings and plugins, and return its output.

    Args:
        arguments: such as `template`, `orion`, the chart's path.
        kubeconfig: of the cluster; None: without a cluster.
        given: written to Helm's standard input, for `--values -`.
        patience: in seconds.

    Raises:
        Failed: Helm ended with an error.
        Missing: Helm is not on this machine and cannot be built.
        subprocess.TimeoutExpired: it took longer than `patience`.
    """
    environment: Mapping[str, str] = {name: text for name, text in os.environ.items() if not name.startswith("HELM_")}
    command = [str(program()), *arguments]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    else:
        # Rendering takes 90 MB without Go's garbage collection, and a fifth less CPU.
        environment = {**environment, "KUBECONFIG": "/dev/null", "GOGC": "off"}
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=patience, env=environment)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return done.stdout
