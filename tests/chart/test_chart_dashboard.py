"""The dashboard queries only metrics that the docs list."""

import json
import re
from pathlib import Path

from testbed import helm
from tests.chart import rendered_chart as chart

DOCUMENTS = Path(helm.CHART, "../../docs").resolve()


def documented() -> set[str]:
    """Return the metric names that the docs write in full; a row may abbreviate further names to their suffix."""
    found = set()
    for page in ("metrics", "admission", "device-plugin", "certificates", "reconciling"):
        text = (DOCUMENTS / f"{page}.md").read_text()
        found |= set(re.findall(r"orion_[a-z0-9_]+", text))
    return found


def test_every_metric_of_the_dashboard_is_documented() -> None:
    text = chart.one(chart.objects({"monitoring": {"dashboard": {"enabled": True}}}), "ConfigMap", "orion-dashboard")
    dashboard = json.loads(text["data"]["orion.json"])
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 20
    asked = {name.removesuffix("_bucket") for each in expressions for name in re.findall(r"\borion_[a-z0-9_]+", each)}
    assert sorted(asked - documented()) == []


def test_panels_do_not_overlap() -> None:
    panels = json.loads((helm.CHART / "files" / "dashboards" / "orion.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not fields & taken, panel["title"]
        assert all(x < 24 for x, _ in fields)
        taken |= fields
