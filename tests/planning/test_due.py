"""What slots are due: requests are kept, limits hold, and nothing is left over that somebody wants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.planning.sharing.due import LEAST, Claim, due, requests

THOUSANDTHS = st.integers(1, 1_000).map(lambda milli: milli / 1_000)
NAMES = st.sampled_from("abcdefgh")
CLAIMS = st.dictionaries(NAMES, st.builds(Claim, st.just(0.0) | THOUSANDTHS, THOUSANDTHS, st.booleans()), max_size=8)


@pytest.mark.parametrize(
    ("claims", "shares"),
    [
        ({"a": Claim(0.4), "b": Claim(0.2)}, {"a": 2 / 3, "b": 1 / 3}),
        ({"a": Claim(0.4), "b": Claim(0.2), "c": Claim()}, {"a": 0.4, "b": 0.2, "c": 0.4}),
        ({"a": Claim(), "b": Claim(), "c": Claim()}, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        ({"a": Claim(0.9), "b": Claim(0.9)}, {"a": 0.5, "b": 0.5}),
        ({"a": Claim(0.8), "b": Claim(0.4)}, {"a": 2 / 3, "b": 1 / 3}),
        ({"a": Claim(1.0), "b": Claim()}, {"a": 1 / 1.01, "b": 0.01 / 1.01}),
        ({"a": Claim(0.995), "b": Claim(), "c": Claim()}, {"a": 0.995 / 1.015, "b": 0.01 / 1.015, "c": 0.01 / 1.015}),
        ({"a": Claim(0.3, limit=0.6)}, {"a": 0.6}),
        ({"a": Claim(0.3, limit=0.4), "b": Claim(0.3)}, {"a": 0.4, "b": 0.6}),
        ({"a": Claim(0.3, limit=0.4), "b": Claim(0.3, limit=0.3)}, {"a": 0.4, "b": 0.3}),
        ({"a": Claim(0.4), "b": Claim(0.4, wants=False), "c": Claim(0.2)}, {"a": 2 / 3, "b": 0, "c": 1 / 3}),
        ({}, {}),
    ],
)
def test_examples(claims: dict[str, Claim], shares: dict[str, float]) -> None:
    assert due(claims) == pytest.approx(shares)


def test_time_that_hp_takes_shrinks_all_but_limits() -> None:
    assert due({"a": Claim(0.4), "b": Claim(0.2)}, 0.3) == pytest.approx({"a": 0.2, "b": 0.1})
    assert due({"a": Claim(0.5, limit=0.1), "b": Claim(0.5)}, 0.4) == pytest.approx({"a": 0.1, "b": 0.3})


@given(CLAIMS, THOUSANDTHS)
def test_limits_hold_and_all_time_is_used_that_somebody_may_use(claims: dict[str, Claim], time: float) -> None:
    shares = due(claims, time)
    wanting = {name: claim for name, claim in claims.items() if claim.wants}
    assert shares.keys() == claims.keys()
    assert all(shares[name] == 0 for name in claims.keys() - wanting.keys())
    assert all(0 <= shares[name] <= claim.limit + 1e-9 for name, claim in wanting.items())
    assert sum(shares.values()) == pytest.approx(min(time, sum(claim.limit for claim in wanting.values())))


@given(CLAIMS, THOUSANDTHS)
def test_each_request_is_kept_up_to_the_limit_and_scaled_if_there_are_too_many(
    claims: dict[str, Claim], time: float
) -> None:
    shares, wished = due(claims, time), requests(claims)
    scale = max(1.0, sum(wished.values()))
    for name, claim in claims.items():
        if claim.wants:
            assert shares[name] >= min(claim.limit, wished[name] * time / scale) - 1e-9
            assert wished[name] >= min(claim.request or LEAST, LEAST)


@given(CLAIMS, NAMES)
def test_a_slot_that_stops_wanting_takes_from_nobody(claims: dict[str, Claim], name: str) -> None:
    if name not in claims:
        return
    before = due(claims)
    after = due(claims | {name: Claim(claims[name].request, claims[name].limit, wants=False)})
    assert all(after[other] >= before[other] - 1e-9 for other in claims if other != name)


@given(CLAIMS.filter(lambda claims: sum(claim.request for claim in claims.values()) > 1))
def test_requests_of_more_than_all_time_are_scaled_alike(claims: dict[str, Claim]) -> None:
    everyone = {name: claim._replace(limit=1.0, wants=True) for name, claim in claims.items()}
    shares, wished = due(everyone), requests(everyone)
    assert shares == pytest.approx({name: each / sum(wished.values()) for name, each in wished.items()})
    assert all(wished[name] == (claim.request or LEAST) for name, claim in claims.items())


@given(CLAIMS, THOUSANDTHS)
def test_slots_without_a_request_share_equally_what_requests_leave(claims: dict[str, Claim], time: float) -> None:
    everyone = {name: claim._replace(limit=1.0, wants=True) for name, claim in claims.items()}
    shares = due(everyone, time)
    without = [shares[name] for name, claim in claims.items() if not claim.request]
    left = 1.0 - sum(claim.request for claim in claims.values())
    scale = max(1.0, sum(requests(everyone).values()))
    for share in without:
        assert share == pytest.approx(time * max(left / len(without), LEAST) / scale)


@given(CLAIMS, NAMES, THOUSANDTHS, THOUSANDTHS)
def test_a_higher_request_never_gives_less(claims: dict[str, Claim], name: str, low: float, high: float) -> None:
    low, high = sorted((low, high))
    others = {other: claim for other, claim in claims.items() if other != name}
    before, after = (due(others | {name: Claim(request)}) for request in (low, high))
    assert after[name] >= before[name] - 1e-9
    assert all(after[other] <= before[other] + 1e-9 for other in others)


@given(CLAIMS, NAMES, THOUSANDTHS, THOUSANDTHS)
def test_a_higher_limit_never_gives_less(claims: dict[str, Claim], name: str, low: float, high: float) -> None:
    low, high = sorted((low, high))
    claim = claims.get(name, Claim())
    before, after = (due(claims | {name: claim._replace(limit=limit)}) for limit in (low, high))
    assert after[name] >= before[name] - 1e-9
    assert all(after[other] <= before[other] + 1e-9 for other in claims if other != name)


@given(CLAIMS, THOUSANDTHS, THOUSANDTHS)
def test_more_time_never_gives_less(claims: dict[str, Claim], little: float, much: float) -> None:
    before, after = due(claims, min(little, much)), due(claims, max(little, much))
    assert all(after[name] >= before[name] - 1e-9 for name in claims)


@given(CLAIMS)
def test_the_order_of_slots_does_not_matter(claims: dict[str, Claim]) -> None:
    assert due(dict(reversed(claims.items()))) == pytest.approx(due(claims))
