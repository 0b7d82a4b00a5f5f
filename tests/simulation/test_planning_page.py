"""The pages about planning: their files are read as the commands read them, and the pages name what there is."""

import re
from pathlib import Path

import pytest
import yaml

from orion.planning.queues.order import POLICIES
from orion.planning.queues.placement import MECHANISMS
from orion.simulation.cluster import clusters
from orion.simulation.fleet import files
from orion.simulation.serving import reading, results
from orion.simulation.serving.simulating import simulate
from orion.simulation.traces.reading import NAMES
from tests.docs.page_examples import yaml_blocks

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("text", yaml_blocks("servers:"))
def test_their_clusters_can_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    cluster = clusters.read(path)
    assert cluster.is_shared
    assert cluster.plain()["gpus"] == 160


@pytest.mark.parametrize("text", yaml_blocks("gpus: ["))
def test_their_scenarios_can_be_simulated(text: str, tmp_path: Path) -> None:
    path = tmp_path / "services.yaml"
    path.write_text(re.sub(r"(?m)^seconds: \d+$", "seconds: 20", text))
    setting = reading.read(path)
    assert setting.plan is not None
    report = results.report(simulate(setting, setting.plan))
    assert all(each["requests"] for each in report["services"])


def test_their_fleets_can_be_read() -> None:
    texts = yaml_blocks("training:\n")
    assert texts
    for text in texts:
        assert files.read(Path("fleet.yaml"), yaml.safe_load(text))[0].services


def test_they_name_every_policy_mechanism_and_form() -> None:
    for page, names in (("training-queues.md", (*POLICIES, *MECHANISMS)), ("traces.md", NAMES)):
        text = (DOCS / page).read_text()
        for name in names:
            assert f"`{name}`" in text
