"""Fixtures for tests of the chart. They need Helm, and build it if it is missing."""

import pytest

from tests.chart import rendered_chart as chart


@pytest.fixture
def everything() -> list[chart.Object]:
    """All objects that the chart can render."""
    return chart.objects(chart.EVERYTHING)
