"""The summary that pods_scale prints. Its kinds of pods differ only in the slot."""

import pytest

from measurements.cluster import pods_scale


def raw(plain: list[float], slots: list[float], joined: list[float]) -> dict[str, object]:
    rounds = [
        {kind: {"running_s": [seconds / 2, seconds]} for kind, seconds in zip(pods_scale.KINDS, turn, strict=True)}
        for turn in zip(plain, slots, joined, strict=True)
    ]
    return {"rounds": rounds, "grant_s": [0.2, 0.1, 0.4]}


def test_each_turn_is_compared_with_the_plain_pods_of_its_round(capsys: pytest.CaptureFixture[str]) -> None:
    pods_scale.report(raw([10, 20, 40], [11, 24, 44], [10, 20, 60]))
    printed = capsys.readouterr().out
    assert "slots / plain 1.10 (1.10 to 1.15); target 1.33" in printed
    assert "joined / plain 1.00 (1.00 to 1.25)" in printed
    assert "3 changes of a grant: median 200 ms, longest 400 ms; target 1 s" in printed


def test_pods_with_slots_differ_from_plain_pods_only_in_the_slot() -> None:
    plain, slots = (pods_scale.pod("a", kind) for kind in ("plain", "slots"))
    assert slots["spec"]["containers"][0].pop("resources") == {"limits": {"orion.gpu/be": "1"}}
    assert slots["metadata"].pop("annotations") == {"orion/priority": "be"}
    assert slots == plain
