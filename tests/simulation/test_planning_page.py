"""docs/planning.md: its cluster files are read as `orion simulate cluster` reads them, and it names what there is."""

import re
from pathlib import Path

import pytest

from orion.planning.queues.order import POLICIES
from orion.planning.queues.placement import MECHANISMS
from orion.simulation.cluster import clusters
from orion.simulation.traces.reading import NAMES
from tools.docs import pages

PAGE = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()
CLUSTERS = [
    block.text
    for page in pages.all_pages()
    for block in page.blocks
    if block.info[:1] == ("yaml",) and re.search(r"(?m)^servers:", block.text)
]


@pytest.mark.parametrize("text", CLUSTERS)
def test_its_clusters_can_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    cluster = clusters.read(path)
    assert cluster.is_shared
    assert cluster.plain()["gpus"] == 160


def test_it_names_every_policy_mechanism_and_form() -> None:
    for name in (*POLICIES, *MECHANISMS, *NAMES):
        assert f"`{name}`" in PAGE
