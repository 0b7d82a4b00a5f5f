"""What tests of the chart share: the repository's root on the path. They need Helm, which is built where it is not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest

from tests.chart import rendered_chart as chart


@pytest.fixture
def everything() -> list[chart.Object]:
    """All objects that the chart can make."""
    return chart.objects(chart.EVERYTHING)
