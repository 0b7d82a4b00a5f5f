"""Fields of a share that have no effect, with the reason and the mode."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.operator.share_objects import (
    GPU_NAME,
    condition,
    device,
    events,
    pod,
    reconciled,
    row,
    share,
    slot,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_shares_give_no_warning_in_mode_timeslice() -> None:
    """Every GPU starts in mode timeslice, so the examples must not set fields that have an effect in mode mps only."""
    shares = list(yaml.safe_load_all((EXAMPLES / "gpushare.yaml").read_text()))
    for each in shares:
        each["metadata"]["namespace"] = "n"
    pods = [pod("p", "serve", "hp"), pod("q", "train")]
    held = {"heldSlots": [slot("p", "hp-0", "serve"), slot("q", "be-0", "train")]}
    clients = [row("p", slot="hp-0", priority="hp"), row("q")]
    cluster = reconciled(*shares, *pods, device(0, **held, clients=clients))
    assert {each["metadata"]["name"] for each in shares} == {"serve", "train"}
    for each in shares:
        assert condition(cluster, "Degraded", each["metadata"]["name"])[:2] == ("False", "AsAsked")
        assert condition(cluster, "NotEnforced", each["metadata"]["name"])[:2] == ("False", "Enforced")
    assert [event.note for event in cluster.events.values() if event.warning] == []


NOT_ENFORCED: dict[str, tuple[dict[str, Any], str, tuple[str, str, str]]] = {
    "several": (
        {"compute": {"request": 0.5, "limit": 0.5}, "slo": {"latency": "20ms"}, "smShare": 0.5},
        "timeslice",
        ("True", "NoPolicy", "enforces spec.slo and spec.smShare, in any mode; remove them"),
    ),
    "slo": ({"slo": {"latency": "20ms"}}, "mps", ("True", "NoPolicy", "enforces spec.slo, in any mode; remove it")),
    "smShare": ({"smShare": 0.5}, "mps", ("True", "NoPolicy", "enforces spec.smShare, in any mode")),
    "maxSlowdown": (
        {"maxSlowdown": 1.3},
        "timeslice",
        (
            "True",
            "ModeTimeslice",
            f"spec.maxSlowdown has an effect in mode mps only, and {GPU_NAME} is in mode timeslice; set spec.mode of "
            "the GPUDevice to mps, or remove it",
        ),
    ),
    "maxSlowdown in mps": ({"maxSlowdown": 1.3}, "mps", ("False", "Enforced", "")),
    "no overlap": ({"maxSlowdown": 1, "smShare": 1, "compute": {"limit": 0.5}}, "timeslice", ("False", "Enforced", "")),
    "tuning": (
        {"tuning": {"longKernel": "5ms", "overlapSMs": 8}},
        "timeslice",
        ("True", "ModeTimeslice", "spec.tuning.overlapSMs and spec.tuning.longKernel have an effect in mode mps only"),
    ),
    "slices": ({"tuning": {"beSlice": "200us"}}, "mps", ("True", "ModeMPS", "an effect in mode timeslice only")),
    "both": (
        {"slo": {"latency": "20ms"}, "maxSlowdown": 2},
        "timeslice",
        ("True", "NoPolicy", "remove it; spec.maxSlowdown has an effect in mode mps only"),
    ),
}


def test_requests_and_limits_of_be_have_their_effect() -> None:
    gpu = device(mode="timeslice", heldSlots=[slot("p", "be-0")])
    cluster = reconciled(share(compute={"request": 0.2, "limit": 0.5}), pod("p"), gpu)
    assert condition(cluster, "NotEnforced")[:2] == ("False", "Enforced")


@pytest.mark.parametrize("case", NOT_ENFORCED)
def test_a_field_without_an_effect_is_named_with_the_reason_and_the_mode(case: str) -> None:
    spec, mode, (state, reason, sentence) = NOT_ENFORCED[case]
    gpu = device(mode=mode, heldSlots=[slot("p", "hp-0")])
    cluster = reconciled(share(priority="hp", **spec), pod("p", priority="hp"), gpu)
    assert condition(cluster, "NotEnforced")[:2] == (state, reason)
    assert sentence in condition(cluster, "NotEnforced")[2]
    assert (("s", f"NotEnforced{reason}") in events(cluster)) is (state == "True")


def test_a_field_that_needs_a_mode_counts_only_on_a_gpu() -> None:
    cluster = reconciled(share(priority="hp", maxSlowdown=1.3), pod("p", priority="hp"))
    assert condition(cluster, "NotEnforced")[:2] == ("False", "Enforced")
