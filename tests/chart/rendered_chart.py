"""Renders the chart with Helm, without a cluster."""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from testbed import helm

NAMESPACE = "orion-system"
KUBERNETES = "1.37.0"
Object = dict[str, Any]
FILES = helm.CHART / "files"
PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
""" Has the form of a certificate authority. """
EVERYTHING: dict[str, Any] = {
    "allocation": "dra",
    "mps": {"enabled": True},
    "monitoring": {"serviceMonitor": {"enabled": True}, "dashboard": {"enabled": True}},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}], "apiServerCIDRs": ["10.0.0.1/32"]},
    "operator": {"podDisruptionBudget": {"enabled": True}},
    "webhook": {"podDisruptionBudget": {"enabled": True}},
}
""" Values with which the chart renders every object that it has. """
# Without C, yaml needs half a second for the definitions alone.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def text(values: Mapping[str, Any] | None = None, release: str = "orion", *arguments: str) -> str:
    """Return the output of `helm template`.

    Raises:
        Failed: the chart or its schema rejects the values.
    """
    return _text(json.dumps(values or {}), release, arguments)


@functools.cache  # the same default rendering serves many tests
def _text(values: str, release: str, arguments: tuple[str, ...]) -> str:
    command = ["template", release, str(helm.CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    return helm.run(*command, "--values", "-", *arguments, given=values)


def objects(values: Mapping[str, Any] | None = None, release: str = "orion") -> list[Object]:
    """Return all objects of a rendering."""
    return [each for each in yaml.load_all(text(values, release), _Loader) if each]


def shipped(name: str) -> list[Object]:
    """Return the objects of a file of the chart."""
    return list(yaml.safe_load_all((FILES / name).read_text()))


def of_kind(found: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of one kind by their names."""
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def one(found: list[Object], kind: str, name: str) -> Object:
    """Return the only object of that kind and name."""
    return of_kind(found, kind)[name]


def pod_specs(found: list[Object]) -> dict[str, Object]:
    """Return the specs of all pods that the objects create, by the name of the object."""
    return {each["metadata"]["name"]: spec for each in found if (spec := _pod_of(each)) is not None}


def containers(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield every container, with a name such as `orion-node/agent`."""
    for name, spec in pod_specs(found).items():
        for container in spec["containers"] + spec.get("initContainers", []):
            yield f"{name}/{container['name']}", container


def container(found: list[Object], name: str) -> Object:
    """Return the container of a name such as `orion-node/agent`."""
    return dict(containers(found))[name]


def _pod_of(made: Object) -> Object | None:
    if made["kind"] == "Pod":
        spec: Object = made["spec"]
        return spec
    template = (made.get("spec") or {}).get("template") if made["kind"] in ("Deployment", "DaemonSet", "Job") else None
    return template["spec"] if template else None
