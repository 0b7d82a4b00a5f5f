"""The pages' own commands, on a cluster: what is fenced ```console run is run, and prints what the page shows.

From the quick start of the README to the last object gone: each page finds the cluster as the one before it left it.
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

WALK = ("README.md", "docs/installing.md", "docs/troubleshooting.md", "docs/upgrading.md", "docs/uninstalling.md")
READS = ("kubectl get", "kubectl logs", "kubectl describe")
""" What these print comes true a moment later; anything else is run once. """
CLEARING = (
    "kubectl delete -f examples/ --ignore-not-found",
    "helm uninstall orion -n orion-system --wait --ignore-not-found",
    "kubectl delete crd gpushares.orion.gpu gpudevices.orion.gpu gpuprofiles.orion.gpu --ignore-not-found",
    "kubectl delete namespace orion-system --ignore-not-found",
)
STEP_SECONDS, READ_SECONDS, POLL = 600.0, 60.0, 0.5


@pytest.fixture
def environment(control_plane: Access, programs: dict[str, Path], tmp_path: Path) -> dict[str, str]:
    """A shell's, as that of somebody who has kubectl and Helm and may do everything in the cluster."""
    for name, program in {"kubectl": programs["kubectl"], "helm": helm.program()}.items():
        (tmp_path / name).symlink_to(program)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(control_plane.kubeconfig)}


@pytest.fixture
def cleared(environment: dict[str, str]) -> Iterator[None]:
    """Nothing of the walk is left, wherever it stopped."""
    yield
    for command in CLEARING:
        subprocess.run(
            ["bash", "-c", command], cwd=pages.ROOT, env=environment, capture_output=True, timeout=STEP_SECONDS
        )


@pytest.mark.thorough  # minutes, and most of what these commands do is what test_chart_lifecycle.py does
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("cleared")
def test_the_pages_commands_print_what_the_pages_show(environment: dict[str, str]) -> None:
    for name in WALK:
        steps = runnable.steps(pages.read(pages.ROOT / name))
        assert steps, f"{name} has nothing to run"
        for step in steps:
            run(name, step, environment)


def run(name: str, step: Step, environment: dict[str, str]) -> None:
    """Run a command until it prints what its page shows, or once."""
    deadline = time.monotonic() + (READ_SECONDS if step.command.startswith(READS) else 0)
    while (fault := _fault(name, step, environment)) and time.monotonic() < deadline:
        time.sleep(POLL)
    assert not fault, fault


def _fault(name: str, step: Step, environment: dict[str, str]) -> str:
    """Return what a command printed in place of what its page shows; empty: it is as shown."""
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
