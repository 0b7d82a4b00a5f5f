"""What tests of the chart share. They need Helm, which is built where it is not."""

import pytest

from tests.chart import rendered_chart as chart


@pytest.fixture
def everything() -> list[chart.Object]:
    """All objects that the chart can make."""
    return chart.objects(chart.EVERYTHING)
