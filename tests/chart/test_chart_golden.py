"""Compares whole renderings with stored ones, so that a person can review all effects of a change to a template.

    .venv/bin/python -m tests.chart.test_chart_golden     # writes the stored renderings again

The definitions of the API types and the admission policies are left out: other tests compare them with their files.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import Object

GOLDEN = Path(__file__).parent / "golden"
LEFT_OUT = ("CustomResourceDefinition", "ValidatingAdmissionPolicy", "MutatingWebhookConfiguration")
MONITORED: dict[str, Any] = {"serviceMonitor": {"enabled": True}}
FROM_PROMETHEUS: dict[str, Any] = {
    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
}
SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "simulated": {"simulatedGPUs": 2, "mps": {"enabled": True}},
    "gpu-operator": {
        "image": {"registry": "registry.example.com", "digest": "sha256:" + "0" * 64},
        "nodeConfiguration": {"driverRoot": "/run/nvidia/driver", "deviceListStrategy": "cdi-cri", "coexist": True},
        "node": {"runtimeClassName": "nvidia", "gpuAccess": "volume-mounts"},
        "webhook": {"runtimeClassName": "nvidia", "requireShare": True},
        "mps": {"enabled": True, "refreshMilliseconds": 40},
        "certificates": {"source": "cert-manager"},
    },
    "dra": {"allocation": "dra", "simulatedGPUs": 2, "monitoring": MONITORED, "networkPolicy": FROM_PROMETHEUS},
    "by-node": {"allocation": "by-node", "monitoring": MONITORED, "networkPolicy": FROM_PROMETHEUS},
    "no-runtime": {
        "nodeConfiguration": {"deviceListStrategy": "device-nodes"},
        "node": {"gpuAccess": "privileged", "everywhere": True, "seLinuxOptions": {"type": "spc_t"}},
        "mps": {"enabled": True},
    },
    "watched": {
        "monitoring": MONITORED,
        "networkPolicy": {
            **FROM_PROMETHEUS,
            "apiServerCIDRs": ["10.0.0.1/32"],
            "webhookFrom": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
        },
        "operator": {"replicas": 1, "namespaces": ["a", "b"]},
        "webhook": {"podDisruptionBudget": {"enabled": True}},
    },
}


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, because people read it."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def golden(name: str) -> str:
    """Return a rendering in its stored form: objects sorted by kind and name, without comments.

    For all sets of values except the defaults, the form contains only the differences from the defaults, and a first
    document that lists the missing objects.
    """
    found, usual = _objects(SETS[name]), {} if name == "defaults" else _objects({})
    kept: list[Object] = [found[place] for place in sorted(found) if found[place] != usual.get(place)]
    if missing := sorted(f"{kind} {each}" for kind, each in usual.keys() - found.keys()):
        kept.insert(0, {"missing": missing})
    return yaml.dump_all(kept, Dumper=_Dumper, sort_keys=True, width=120)


def _objects(values: dict[str, Any]) -> dict[tuple[str, str], Object]:
    found = [each for each in chart.objects(values) if each["kind"] not in LEFT_OUT]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize("name", SETS)
def test_the_rendering_equals_the_reviewed_one(name: str) -> None:
    kept = (GOLDEN / f"{name}.yaml").read_text()
    assert golden(name) == kept, "if it is meant: python -m tests.chart.test_chart_golden"


def test_every_stored_rendering_is_compared() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == set(SETS)


if __name__ == "__main__":
    for each in SETS:
        (GOLDEN / f"{each}.yaml").write_text(golden(each))
