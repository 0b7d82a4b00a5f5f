"""Pods and shares for tests of the webhook's decisions, and what it writes into a pod."""

from typing import Any

from orion.crds.annotations import PINNED_SHARE
from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.operator.webhook.admitting import Cluster, admit
from orion.operator.webhook.cluster_facts import Gpus
from orion.operator.webhook.decisions import Decision
from orion.operator.webhook.defaults import Defaults

DEFAULTS = Defaults()
HOOK = DEFAULTS.hook
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
BE, HP = {"orion/priority": "be"}, {"orion/priority": "hp"}


def share(name: str, priority: str = "hp", app: str | None = None, **spec: Any) -> GPUShare:
    selector = {"selector": {"matchLabels": {"app": app}}} if app else {}
    return GPUShare.read({"metadata": {"name": name}, "spec": {"priority": priority, **selector, **spec}})


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod with containers c0, c1, ...; it has priority hp unless `annotations` are given."""
    named = [{"name": f"c{number}", **container} for number, container in enumerate(containers or (GPU,))]
    marks = {"orion/priority": "hp"} if annotations is None else annotations
    return {"metadata": {"annotations": marks, "labels": {"app": "chat"}}, "spec": {"containers": named, **spec}}


def decide(
    given: dict[str, Any], *shares: GPUShare, largest: int | None = None, some_claims: bool = False, **defaults: Any
) -> Decision:
    return admit(given, Cluster(Shares(shares), Gpus(largest, some_claims)), Defaults(**defaults))


def slots(decision: Decision) -> dict[str, int]:
    spec = decision.pod["spec"]
    limits = {
        each["name"]: (each.get("resources") or {}).get("limits", {})
        for each in (*spec["containers"], *spec.get("initContainers", ()))
    }
    return {
        container: int(amount)
        for container, all_limits in limits.items()
        for name, amount in all_limits.items()
        if name.startswith("orion.gpu/")
    }


def pinned(decision: Decision) -> str:
    return str(decision.pod["metadata"]["annotations"][PINNED_SHARE])


def env(decision: Decision, index: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decision.pod["spec"]["containers"][index].get("env", [])
    return found


TWO_GPUS = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
