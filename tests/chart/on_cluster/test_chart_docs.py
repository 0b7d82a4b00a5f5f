"""Runs the commands of the docs on a cluster: blocks fenced ```console run must print what the page shows.

The pages run in order, from the README's quick start to the removal of the last object, and then once more with claims.
Each page finds the cluster in the state that the previous one left.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import helm
from testbed.access import Access
from tools.docs import pages, runnable
from tools.docs.runnable import Step

pytestmark = pytest.mark.node

WALK = (
    "README.md",
    "docs/installing.md",
    "docs/troubleshooting.md",
    "docs/upgrading.md",
    "docs/uninstalling.md",
    "docs/dra.md",
)
READS = ("kubectl get", "kubectl logs", "kubectl describe")
""" These commands are repeated until they print the expected text; all others run once. """
CLEARING = (
    "kubectl delete -f examples/gpushare.yaml -f examples/serve.yaml -f examples/train.yaml --ignore-not-found",
    "helm uninstall orion -n orion-system --wait --ignore-not-found",
    "kubectl delete crd gpushares.orion.gpu gpudevices.orion.gpu gpuprofiles.orion.gpu --ignore-not-found",
    "kubectl delete namespace orion-system --ignore-not-found",
)
STEP_SECONDS, READ_SECONDS, POLL = 600.0, 60.0, 0.5


@pytest.fixture
def environment(control_plane: Access, programs: dict[str, Path], tmp_path: Path) -> dict[str, str]:
    """The environment of a shell with kubectl, Helm and administrator rights in the cluster."""
    for name, program in {"kubectl": programs["kubectl"], "helm": helm.program()}.items():
        (tmp_path / name).symlink_to(program)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(control_plane.kubeconfig)}


@pytest.fixture
def cleared(environment: dict[str, str]) -> Iterator[None]:
    """Remove everything that the commands created, even if one failed."""
    yield
    for command in CLEARING:
        subprocess.run(
            ["bash", "-c", command], cwd=pages.ROOT, env=environment, capture_output=True, timeout=STEP_SECONDS
        )


@pytest.mark.thorough  # takes minutes, and test_chart_lifecycle.py covers most of it
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("cleared")
def test_the_pages_commands_print_what_the_pages_show(environment: dict[str, str]) -> None:
    for name in WALK:
        steps = runnable.steps(pages.read(pages.ROOT / name))
        assert steps, f"{name} has nothing to run"
        for step in steps:
            run(name, step, environment)


def run(name: str, step: Step, environment: dict[str, str]) -> None:
    """Run a command once, or until it prints what its page shows."""
    deadline = time.monotonic() + (READ_SECONDS if step.command.startswith(READS) else 0)
    while (fault := _fault(name, step, environment)) and time.monotonic() < deadline:
        time.sleep(POLL)
    assert not fault, fault


def _fault(name: str, step: Step, environment: dict[str, str]) -> str:
    """Return the output of a command if it differs from the output on the page; otherwise an empty text."""
    done = subprocess.run(
        ["bash", "-c", step.command],
        cwd=pages.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_SECONDS,
    )
    difference = runnable.differs(step.output, done.stdout) if done.returncode == 0 else "it failed"
    return difference and f"{name}:{step.line}: {step.command}\n{difference}\n{done.stdout}"
