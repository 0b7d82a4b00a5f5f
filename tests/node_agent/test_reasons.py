"""Why a slot has less GPU time than it asked for, in sentences."""

from dataclasses import replace

import pytest

from orion.node_agent.sharing.reasons import Facts, reasons
from orion.node_agent.sharing.usage import Parts, Totals


def parts(hp: float = 0.0, turns: float = 1.0, **slot: float) -> Parts:
    usual = {"due": 0.4, "charged": 0.4, "measured": 0.39, "waited": 0.6, "wanted": 1.0}
    return Parts(10.0, Totals(**{**usual, **slot}), hp, turns)


CASES = [
    (Facts(clients=0), {"NoClients": "no process has joined"}),
    (Facts(), {"TooEarly": "a moment ago"}),
    (Facts(request=0.4, requests=0.8, parts=parts()), {"AsAsked": "has what it asked for"}),
    (Facts(request=0.4, requests=0.8, parts=parts(wanted=0.25)), {"NotWanted": "work for the GPU in 0.25 of"}),
    (
        Facts(request=0.4, requests=0.8, parts=parts(hp=0.5, due=0.2, charged=0.2, measured=0.2)),
        {"HpFirst": "hp took 0.5 of the time, and be shares what hp leaves: its request of 0.4 is 0.2 of the GPU"},
    ),
    (Facts(request=0.8, requests=1.2, parts=parts()), {"RequestsScaled": "up to 1.2, so its 0.8 counts as 0.667"}),
    (Facts(requests=1.2, parts=parts()), {"RequestsScaled": "add up to 1.2"}),
    (Facts(limit=0.4, request=0.4, requests=0.4, parts=parts()), {"Limit": "its limit is 0.4 of the GPU's time"}),
    (
        Facts(limit=0.4, request=0.4, requests=0.4, parts=parts(turns=0.0)),
        {"Limit": "its limit is 0.4", "Alone": "takes no turns"},
    ),
    (Facts(parts=parts(turns=0.0)), {"Alone": "no other be slot competes"}),
    (Facts(parts=parts()), {"AsAsked": "has what it asked for"}),
    (Facts(requests=0.6, parts=parts()), {"NoRequest": "shares what the others' requests leave: 0.4"}),
    (
        Facts(request=0.4, parts=parts(shut=0.7, wanted=0.3)),
        {"NoProgress": "for 0.7 of the time it got no turns", "NotWanted": "0.3"},
    ),
    (
        Facts(request=0.4, debt_ns=250_000_000, parts=parts()),
        {"Debt": "0.25 s more than it was due: this debt comes off its next turns"},
    ),
    (
        Facts(request=0.4, debt_ns=250_000_000, parts=parts(charged=0.3, measured=0.3)),
        {"Debt": "this debt comes off its next turns"},
    ),
    (Facts(request=0.4, parts=parts(measured=0.2)), {"IdleInTurns": "turns took 0.4 of the time, and its work on"}),
    (Facts(request=0.4, parts=parts(charged=0.3, measured=0.3)), {"Behind": "due 0.4 of the time and was charged 0.3"}),
    (
        Facts(request=0.05, parts=parts(due=0.05, charged=0, measured=0)),
        {"Behind": "due 0.05 of the time and was charged 0:"},
    ),
    (Facts(request=0.05, parts=parts(due=0.053, charged=0.038, measured=0.038)), {"Behind": "due 0.053 of the time"}),
    (Facts(request=0.05, parts=parts(due=0.05, charged=0.047, measured=0.047)), {"AsAsked": "has what it asked for"}),
    (Facts(request=0.01, parts=parts(due=0.01, charged=0.006, measured=0.006)), {"AsAsked": "has what it asked for"}),
    (
        Facts(request=0.05, parts=replace(parts(due=0.05, charged=0.02, measured=0.02), seconds=1.0)),
        {"AsAsked": "has what it asked for"},
    ),
    (Facts(request=0.4, window=0.3, parts=parts()), {"JobOnSeveralGPUs": "on all of them together, 0.3 of"}),
    (Facts(unordered=True, parts=parts(turns=0.0)), {"PolicyNone": "the policy none lets all programs run at once"}),
    (Facts(is_hp=True, request=0.9, parts=parts(measured=0.9, waited=0.1)), {"Request": "sure of the other 0.1"}),
    (Facts(is_hp=True, request=1.0, parts=parts(measured=0.7)), {"First": "work on the GPU for 0.7 of the time"}),
    (Facts(is_hp=True, limit=0.5, parts=parts(measured=0.5)), {"Limit": "its limit is 0.5"}),
]


@pytest.mark.parametrize(("facts", "expected"), CASES, ids=range(len(CASES)))
def test_reasons(facts: Facts, expected: dict[str, str]) -> None:
    found = {each.reason: each.message for each in reasons(facts)}
    assert found.keys() == expected.keys(), found
    for reason, words in expected.items():
        assert words in found[reason]
