"""Helm, which renders and installs the chart: found as the cluster's binaries are, built once where it is not there."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed import binaries, go_modules
from testbed.binaries import HELM, Say

CHART = Path(__file__).resolve().parents[1] / "charts" / "orion"


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr)


def program(say: Say = _to_standard_error) -> Path:
    """Return Helm of the version that go/helm/go.mod pins.

    Raises:
        Unavailable: it is not on this machine and cannot be built.
    """
    go_modules.build_missing(say, [HELM])
    found = binaries.find(HELM, lambda _: None)
    assert found is not None
    return found


class Failed(Exception):
    """Helm refused; the text is what it said."""


def run(*arguments: str, kubeconfig: Path | None = None, given: str = "", patience: float = 120) -> str:
    """Run Helm and return what it said. Nobody's own settings and plugins have a part in it.

    Args:
        arguments: such as `template`, `orion`, the chart's path.
        kubeconfig: the way into a cluster; None: there is none.
        given: to its standard input, for `--values -`.
        patience: in seconds.

    Raises:
        Failed: it ended with an error.
        Unavailable: there is no Helm.
        subprocess.TimeoutExpired: it took longer.
    """
    environment: Mapping[str, str] = {name: text for name, text in os.environ.items() if not name.startswith("HELM_")}
    command = [str(program()), *arguments]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    else:
        environment = {**environment, "KUBECONFIG": "/dev/null"}
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=patience, env=environment)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return done.stdout
