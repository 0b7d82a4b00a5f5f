"""The notes of an installation. Helm shows them only with a cluster, so the tests render them in another template."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import helm
from tests.chart import rendered_chart as chart

SHOWING = '{"kind": "Notes", "text": {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}}'


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chart that renders its notes as an object."""
    folder = tmp_path_factory.mktemp("chart") / "orion"
    shutil.copytree(helm.CHART, folder)
    (folder / "templates" / "notes.yaml").write_text(SHOWING)
    return folder


def notes(folder: Path, values: dict[str, Any]) -> str:
    """Return the notes for these values."""
    command = ["template", "orion", str(folder), "-n", chart.NAMESPACE, "--kube-version", chart.KUBERNETES]
    said = helm.run(*command, "-s", "templates/notes.yaml", "--values", "-", given=yaml.safe_dump(values))
    text: str = yaml.safe_load(said)["text"]
    return text


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        ({}, ["helm test orion -n orion-system", "kubectl get gpus", "runtimeClassName=nvidia"], ["simulated"]),
        ({"simulatedGPUs": 2}, ["2 simulated GPUs", "compute nothing"], ["runtimeClassName"]),
        ({"webhook": {"runtimeClassName": "nvidia"}}, ["kubectl get gpus"], ["runtimeClassName=nvidia"]),
        ({"mps": {"enabled": True}}, ["MPS", '"mode":"mps"', "ends all clients", '"mode":"timeslice"'], []),
        ({}, ["Running pods continue under their last grants."], ["unmanaged"]),
        ({"crds": {"keep": False}}, ["removes the API types"], ["keeps the API types", "delete crd"]),
        ({}, ["keeps the API types", "kubectl delete crd", "pod-security.kubernetes.io/enforce=privileged"], ["MPS"]),
    ],
)
def test_notes_name_the_next_step(copy: Path, values: dict[str, Any], said: list[str], unsaid: list[str]) -> None:
    text = notes(copy, values)
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


def test_the_notes_lines_fit_a_terminal(copy: Path) -> None:
    for values in ({}, {"simulatedGPUs": 2, "mps": {"enabled": True}}, {"crds": {"keep": False}}):
        assert [line for line in notes(copy, values).splitlines() if len(line) > 120] == []
