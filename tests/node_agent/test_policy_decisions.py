"""Which pod decides the policy of a GPU, and which page results from an hp pod's share."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from orion.crds.grant import GrantedPolicy
from orion.crds.policy import PolicyName
from orion.node_agent.cluster.holders.granted_policy import as_page
from orion.node_agent.cluster.holders.grants import decide
from orion.node_agent.cluster.state import Asking
from orion.node_agent.pages import policy_words
from orion.node_agent.slots.holders import Holder

DEFAULT = policy_words.DEFAULT

policies = st.builds(
    GrantedPolicy,
    policy=st.sampled_from(PolicyName),
    max_slowdown_milli=st.none() | st.integers(0, 100_000),
    sharing_cost_milli=st.none() | st.integers(0, 100_000),
    request_milli=st.none() | st.integers(0, 100_000),
    window_us=st.none() | st.integers(1, 60_000_000),
    linger_floor_us=st.none() | st.integers(1, 60_000_000),
    linger_ceiling_us=st.none() | st.integers(1, 60_000_000),
)
asking_pods = st.lists(st.tuples(st.integers(1, 3).map(str), policies), max_size=4).map(
    lambda found: [
        (created, Asking(Holder("n", f"p{number}", "main", f"u{number}"), f"hp-{number}", f"n/s{number}", policy))
        for number, (created, policy) in enumerate(found)
    ]
)


@given(asking_pods)
@settings(deadline=None, max_examples=60)
def test_the_oldest_pod_decides_for_any_order_of_the_pods(asking: list[tuple[str, Asking]]) -> None:
    decisions = [decide(order, DEFAULT) for order in itertools.permutations(asking)]
    assert all(each == decisions[0] for each in decisions)
    deciding, conflicting = decisions[0]
    assert (deciding is None) == (not asking)
    if deciding is not None:
        created = {each.slot: at for at, each in asking}
        assert created[deciding.slot] == min(created.values())
        policy = as_page(deciding.policy, DEFAULT)
        for _, each in asking:
            assert (each in conflicting) == (as_page(each.policy, DEFAULT) != policy)


@given(policies)
@settings(deadline=None)
def test_any_grant_makes_a_valid_page(granted: GrantedPolicy) -> None:
    page = as_page(granted, DEFAULT)
    assert 0 < page.linger_floor_ns <= page.linger_ceiling_ns <= 10**9
    assert 50_000 <= page.window_ns <= 10**9
    assert 1_000 <= page.max_slowdown_milli <= 100_000
    assert 1_000 <= page.sharing_cost_milli <= 100_000
    assert 0 <= page.minimum_share_milli <= 500
    assert as_page(GrantedPolicy(), DEFAULT) == DEFAULT
