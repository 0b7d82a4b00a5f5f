"""For how long a node is opened during a rolling update, and how often, whatever new pods do."""

from hypothesis import given
from hypothesis import strategies as st

from orion.operator.reconciler.records import Named
from orion.operator.reconciler.rollout_labels import rollout_label
from orion.operator.reconciler.rollouts import AGAIN_S, ENDS_S, WINDOW_S
from tests.operator.rollout_cluster import full


def test_the_second_of_two_new_pods_gets_its_own_minute_once_the_first_has_replaced_its_pod() -> None:
    cluster = full()
    cluster.pod("new", "b")
    cluster.pod("newer", "b")
    assert cluster.label() == "open"
    cluster.now += WINDOW_S - 1
    cluster.pod("newer", "b", "node", running=False)  # the scheduler may choose either
    assert cluster.label(slots=2) == "open"
    cluster.gpu("old", "newer")
    assert [cluster.label(slots=2), cluster.label()] == ["ends-", ""], "this GPU has two pods until the old one ends"
    cluster.now += 2 * WINDOW_S
    assert cluster.label() == ""
    cluster.pod("old-2", "a", "node")
    cluster.gpu("old-2", number=1)
    assert cluster.label(slots=2) == "open", "another GPU has an old pod alone"
    cluster.state.drop_pod(Named("n", "old-2"))
    cluster.gpu(number=1)
    cluster.now += WINDOW_S
    assert [cluster.label(slots=3), cluster.label(slots=2)] == ["ends-", ""]
    cluster.now += AGAIN_S
    cluster.state.drop_pod(Named("n", "old"))
    cluster.pod("newer", "b", "node")
    cluster.gpu("newer")
    cluster.gpu("old-2", number=1)
    cluster.pod("old-2", "a", "node")
    assert cluster.label(slots=2) == "open"
    cluster.now += WINDOW_S - 1
    assert cluster.label(slots=2) == "open"


def test_one_new_pod_opens_one_node_and_another_after_a_minute() -> None:
    cluster = full()
    cluster.gpu("old-2", number=1, node="node-2")
    cluster.pod("old-2", "a", "node-2")
    cluster.pod("new", "b")
    assert (cluster.label(), cluster.label("node-2")) == ("open", "")
    cluster.now += WINDOW_S
    assert (cluster.label(), cluster.label("node-2")) == ("ends-", "open")
    cluster.now += WINDOW_S
    assert (cluster.label(), cluster.label("node-2")) == ("", "ends-")
    assert (cluster.label(), cluster.label("node-2")) == ("", "")
    cluster.now += AGAIN_S
    assert cluster.label() == "open"


def test_a_kubelet_that_reports_nothing_does_not_keep_a_node_closed() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    cluster.state.drop_pod(Named("n", "new"))
    assert [cluster.label(slots=2), cluster.label(slots=2)] == ["ends-", "ends-"]
    cluster.now += ENDS_S
    assert cluster.label(slots=2) == ""


def test_time_without_the_lease_does_not_count() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    cluster.now += 2 * WINDOW_S
    cluster.state.rollouts.leads()
    assert cluster.label(slots=2) == "open"
    cluster.now += WINDOW_S
    assert cluster.label(slots=2) == "ends-"


def test_a_tenant_who_replaces_its_new_pod_again_and_again_does_not_keep_a_node_closed() -> None:
    cluster = full()
    samples: list[bool] = []
    for number in range(int(AGAIN_S / 20)):
        cluster.state.drop_pod(Named("n", f"new-{number - 1}"))
        cluster.pod(f"new-{number}", "b")
        samples.append(cluster.label() != "")
        cluster.now += 20
    assert sum(samples) <= len(samples) / 2


def test_a_rolling_update_of_many_pods_of_one_node_goes_on() -> None:
    cluster = full()
    for number in range(10):
        new = f"new-{number}"
        cluster.pod(new, "b")
        assert cluster.label() == "open"
        cluster.pod(new, "b", "node", running=False)
        cluster.gpu("old", new)
        assert [cluster.label(slots=2), cluster.label()] == ["ends-", ""]
        cluster.state.drop_pod(Named("n", new))
        cluster.gpu("old")


step = st.tuples(
    st.sampled_from(["new", "newer", "other", "outsider"]),
    st.sampled_from(["b", "c"]),
    st.sampled_from(["", "node", "gone"]),
    st.sampled_from([1, 2]),
    st.sampled_from([0.0, 1.0, 30.0, WINDOW_S]),
)


@given(st.lists(step, max_size=20))
def test_new_pods_that_never_run_close_a_node_for_others_a_minute_each(
    steps: list[tuple[str, str, str, int, float]],
) -> None:
    cluster = full()
    for name, revision, node, slots, passes in steps:
        if node == "gone":
            cluster.state.drop_pod(Named("n", name))
        else:
            cluster.pod(name, revision, node, "other" if name == "outsider" else "web", running=False)
        cluster.label(slots=slots)
        cluster.now += passes
    samples: list[bool] = []
    while len(samples) < AGAIN_S / 10:
        cluster.now += 10
        samples.append(cluster.label() != "")
    assert sum(samples) <= 4 * (WINDOW_S / 10 + 2), "four pods, a window for each of them in this time"


def test_a_node_is_looked_at_again_when_its_offer_to_a_waiting_pod_may_be_made() -> None:
    cluster = full()
    cluster.gpu("old-2", number=1, node="node-2")
    cluster.pod("old-2", "a", "node-2")
    cluster.pod("new", "b")
    assert (cluster.label(), cluster.label("node-2")) == ("open", "")
    again = rollout_label(cluster.state, cluster.state.nodes["node-2"], cluster.now).again
    assert again is not None
    assert again <= WINDOW_S
    cluster.now += WINDOW_S
    assert (cluster.label(), cluster.label(), cluster.label("node-2")) == ("ends-", "", "open")
    again = rollout_label(cluster.state, cluster.state.nodes["node"], cluster.now).again
    assert again is not None
    assert again <= AGAIN_S
