"""The agent of a node: who holds which slot, and with which grant, seen in the pages of a real agent process.

The kubelet and the operator are stand-ins; tests/cluster and tests/node use real ones.
"""

import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, RequestRefused
from tests.node_agent.agent_in_cluster import SECONDS, Node, grant
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.node_stand_in import NODE
from tests.node_agent.protocol_client import ProtocolClient, current_grant, current_policy

MIB = 1 << 20


def test_a_grant_applies_before_its_container_starts_and_follows_changes(node: Node) -> None:
    asked = grant(memoryLimitBytes=64 * MIB, computeRequestMilli=250, computeLimitMilli=600, failClosed=True)
    prepared = node.run("a", "be-3", asked)
    assert (prepared.pod, prepared.fail_closed) == ("default/a", True)
    assert (prepared.slot.memory_limit_bytes, prepared.slot.request, prepared.slot.limit) == (64 * MIB, 0.25, 0.6)
    with ProtocolClient(node.agent.slot("be-3")).join() as client:
        page = current_grant(client.grant)
        assert page.memory_limit_bytes == 64 * MIB
        assert (page.compute_request_milli, page.compute_limit_milli) == (250, 600)
        node.pods.put("a", grant(memoryLimitBytes=32 * MIB))
        eventually(lambda: current_grant(client.grant).memory_limit_bytes == 32 * MIB, "the page follows the grant", 10)
        page = current_grant(client.grant)
        assert (page.compute_request_milli, page.compute_limit_milli, page.role) == (0, 0, layout.Role.BE)


def test_a_limit_of_hp_is_on_its_page_but_its_request_is_not(node: Node) -> None:
    node.run("a", "hp-0", grant("hp", computeRequestMilli=900, computeLimitMilli=950))
    with ProtocolClient(node.agent.slot("hp-0")).join() as client:
        page = current_grant(client.grant)
        assert (page.compute_request_milli, page.compute_limit_milli) == (0, 950)


def test_a_pod_whose_share_was_deleted_before_it_had_a_grant_does_not_start_without_limits(node: Node) -> None:
    node.pods.put("a", kept="GPUShare s was deleted: the pod keeps the last grant of that share")
    node.kubelet.give("a", (GPU, "be-0"))

    def refusal() -> str:
        try:
            node.prepare_once("be-0")  # the pod may not be known yet
        except RequestRefused as refused:
            return str(refused)
        return ""

    sentence = eventually(refusal, "the pod is known")
    assert "pod default/a may not start without a grant, and had none on this node: GPUShare s was" in sentence
    assert "create it again" in sentence
    assert node.run("a", "be-0", grant(memoryLimitBytes=MIB)).slot.memory_limit_bytes == MIB
    node.pods.put("a", kept="GPUShare s was deleted: the pod keeps the last grant of that share")
    assert node.prepare("be-0").slot.memory_limit_bytes == MIB  # its container was restarted


def test_options_that_a_grant_does_not_set_are_the_defaults(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    assert node.run("b", "be-0").slot.memory_limit_bytes == 0
    assert node.run("c", "be-0", grant(container="another", memoryLimitBytes=MIB)).slot.memory_limit_bytes == 0


def test_the_next_holder_of_a_slot_gets_its_own_grant(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=64 * MIB))
    with ProtocolClient(node.agent.slot("be-0")).join() as client:
        node.pods.put("a", grant(), ended=True)
        node.kubelet.give("a")
        client.sock.settimeout(SECONDS)
        with pytest.raises(EOFError):  # clients of an ended pod are removed
            client.receive_until({(0, 0)})
        eventually(lambda: node.slot("be-0").memory_limit_bytes == 0, "the default grant", SECONDS)
    assert node.held() == []
    assert node.run("b", "be-0", grant(memoryLimitBytes=MIB)).slot.memory_limit_bytes == MIB
    # No PrepareSlot comes, as if the agent was away. Only the kubelet names the pod, and the pod's clients stay.
    with ProtocolClient(node.agent.slot("be-0")).join() as client:
        node.pods.put("c", grant(memoryLimitBytes=2 * MIB))
        node.kubelet.give("b")
        node.kubelet.give("c", (GPU, "be-0"))
        node.pods.put("d")  # a change of any pod makes the agent query the kubelet
        eventually(lambda: current_grant(client.grant).memory_limit_bytes == 2 * MIB, "the grant of c", SECONDS)


def test_an_unreadable_grant_changes_nothing_and_is_reported(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.pods.put("a", "{nonsense")
    eventually(
        lambda: "its last one stays valid" in node.conditions().get("GrantUnreadable", ""), "it is reported", SECONDS
    )
    assert node.slot("be-0").memory_limit_bytes == MIB
    node.pods.put("a", grant(memoryLimitBytes=2 * MIB))
    eventually(lambda: node.slot("be-0").memory_limit_bytes == 2 * MIB, "the next is applied", SECONDS)
    eventually(lambda: "GrantUnreadable" not in node.conditions(), "the condition ends", SECONDS)
    node.run("b", "be-1", {"format": 99, "priority": "be"})
    eventually(lambda: "the default applies" in node.conditions().get("GrantUnreadable", ""), "a later one", SECONDS)


def test_the_slot_decides_the_role_and_a_different_grant_is_reported(node: Node) -> None:
    node.run("a", "be-0", grant("hp", memoryLimitBytes=MIB, policy={"policy": "none"}))
    eventually(lambda: "be applies" in node.conditions().get("RoleDiffers", ""), "it is reported", SECONDS)
    assert node.slot("be-0").role == agent_pb2.BE
    assert node.gpu().policy == "orion"


def test_the_oldest_hp_pod_decides_the_policy(stopped_node: Node) -> None:
    node = stopped_node
    node.start("--hp-slots", "3")
    node.run("young", "hp-1", grant("hp", policy={"policy": "gate", "windowUs": 300}), created=20)
    eventually(lambda: node.gpu().policy == "gate", "the only one decides", SECONDS)
    node.run(
        "old", "hp-0", grant("hp", share="other", policy={"policy": "orion", "maxSlowdownMilli": 1_200}), created=10
    )
    node.run("none", "hp-2", grant("hp"), created=1)  # this pod requests no policy
    eventually(
        lambda: node.gpu().settings.fields["max_slowdown"] == 1.2, "the oldest pod that requests a policy", SECONDS
    )
    sentence = "GPUShare default/other of default/old, the oldest hp pod, decides the policy; these request another "
    eventually(lambda: node.conditions().get("PolicyConflict", "").startswith(sentence), "it is reported", SECONDS)
    assert "default/young (default/a-share)" in node.conditions()["PolicyConflict"]
    assert node.gpu().window_us == 400
    with AgentClient(node.agent.root) as administrator:
        with pytest.raises(RequestRefused, match="GPUShare default/other decides") as refused:
            administrator.set_policy(GPU, policy="none")
        assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    with ProtocolClient(node.agent.slot("be-0")).join() as client:
        node.pods.put("young", grant("hp", policy={"policy": "orion", "maxSlowdownMilli": 1_200}), created=20)
        eventually(lambda: "PolicyConflict" not in node.conditions(), "they agree", SECONDS)
        node.pods.put("old", ended=True)
        node.pods.put("young", ended=True)
        node.kubelet.forget_all()
        eventually(lambda: current_policy(client.policy).max_slowdown_milli == 1_000, "the default again", SECONDS)
    with AgentClient(node.agent.root) as administrator:
        assert administrator.set_policy(GPU, policy="none").policy == "none"
    node.run("new", "hp-0", grant("hp", policy={"policy": "gate"}))
    eventually(lambda: node.gpu().policy == "gate", "decided again", SECONDS)
    node.pods.delete("new")
    node.kubelet.forget_all()
    eventually(lambda: node.gpu().policy == "none", "what administrators set is the default", SECONDS)


def test_a_kubelet_that_has_just_started_frees_no_slot(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    with ProtocolClient(node.agent.slot("be-0")).join() as client:
        node.kubelet.stop()
        node.kubelet.forget_all()
        node.kubelet.start()
        asked = node.kubelet.lists
        node.pods.put("b")
        eventually(lambda: node.kubelet.lists > asked, "the kubelet was asked", SECONDS)
        node.kubelet.give("b", (GPU, "be-1"))
        node.pods.put("b", grant(memoryLimitBytes=2 * MIB))
        eventually(lambda: node.slot("be-1").memory_limit_bytes == 2 * MIB, "the kubelet's answers count", SECONDS)
        assert current_grant(client.grant).memory_limit_bytes == MIB
        assert node.held() == ["be-0", "be-1"]


def test_a_pod_that_was_deleted_by_force_holds_its_slot_while_the_kubelet_lists_it(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.pods.delete("a")
    node.run("b", "be-1", grant())
    assert node.held() == ["be-0", "be-1"]
    assert node.slot("be-0").memory_limit_bytes == MIB
    node.kubelet.give("a")
    node.pods.put("c")
    eventually(lambda: node.held() == ["be-1"], "the slot is free", SECONDS)
    assert node.slot("be-0").memory_limit_bytes == 0


def test_a_silent_kubelet_delays_a_start_by_a_second_and_the_grant_applies_later(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.kubelet.open.clear()
    node.pods.put("b", grant(memoryLimitBytes=2 * MIB, failClosed=True))
    node.kubelet.give("b", (GPU, "be-0"))
    begin = time.monotonic()
    prepared = node.prepare_once("be-0")
    assert time.monotonic() - begin < 10
    assert (prepared.pod, prepared.fail_closed, prepared.slot.memory_limit_bytes) == ("", False, 0)
    assert node.held() == ["be-0"]
    with ProtocolClient(node.agent.slot("be-0")).join() as client:
        node.kubelet.open.set()  # this answer may be older than the start: the agent asks again
        eventually(lambda: current_grant(client.grant).memory_limit_bytes == 2 * MIB, "the grant", SECONDS)
        assert len(node.slot("be-0").clients) == 1  # the client stays


def test_without_the_operator_the_known_state_stays_valid(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB, failClosed=True))
    node.pods.away = True
    prepared = node.prepare("be-0")  # the pod's container was restarted
    assert (prepared.pod, prepared.fail_closed, prepared.slot.memory_limit_bytes) == ("default/a", True, MIB)
    node.kubelet.give("unknown", (GPU, "be-1"))
    begin = time.monotonic()
    prepared = node.prepare_once("be-1")
    assert time.monotonic() - begin < 10
    # Only the kubelet has named the pod, so the agent knows neither the pod's grant nor whether it must fail closed.
    assert (prepared.pod, prepared.fail_closed, prepared.slot.memory_limit_bytes) == ("", False, 0)
    node.pods.put("unknown", grant(memoryLimitBytes=2 * MIB, failClosed=True))
    node.pods.away = False
    eventually(lambda: node.slot("be-1").memory_limit_bytes == 2 * MIB, "the grant, once it is known", SECONDS)
    with AgentClient(node.agent.root) as administrator:
        devices = (message.devices for message in administrator.watch_devices())
        assert any(len(device.fail_closed) == 2 for (device,) in devices), "the plugin is notified of both pods"


def test_the_next_agent_knows_the_holders_without_kubelet_and_operator(stopped_node: Node) -> None:
    node = stopped_node
    node.start("--hp-slots", "2")
    policy = {"policy": "gate", "windowUs": 300}
    node.run("a", "hp-1", grant("hp", memoryLimitBytes=64 * MIB, memoryRequestBytes=MIB, policy=policy))
    eventually(lambda: node.gpu().policy == "gate", "decided", SECONDS)
    with ProtocolClient(node.agent.slot("hp-1")).join() as client:
        node.agent.kill()
        node.kubelet.stop()
        node.pods.away = True
        node.start("--hp-slots", "1")
        assert client.return_to_agent().returned == 1
        assert current_grant(client.grant).memory_limit_bytes == 64 * MIB
        with AgentClient(node.agent.root) as administrator:
            (device,) = next(administrator.watch_devices()).devices
            assert (list(device.held), device.memory_reserved_bytes) == (["hp-1"], MIB)
            assert "hp-1" in device.slots
            with pytest.raises(RequestRefused, match="GPUShare default/a-share decides"):
                administrator.set_policy(GPU, policy="none")
        node.pods.put("a", ended=True)
        node.pods.away = False
        node.kubelet.forget_all()
        node.kubelet.start()
        eventually(lambda: "hp-1" not in node.advertised(), "the slot ends when it is free", SECONDS)
    eventually(lambda: node.gpu().policy == "orion", "the default again", SECONDS)
    assert node.gpu().window_us == 400


def test_a_held_slot_is_served_even_if_it_is_not_configured(node: Node) -> None:
    node.pods.put("a", grant(memoryLimitBytes=MIB))
    node.kubelet.give("a", (GPU, "be-12"), (GPU, "be-0"), (GPU, "xx-0"), ("GPU-elsewhere", "be-1"))
    node.pods.put("b")
    eventually(lambda: node.held() == ["be-0", "be-12"], "both are held", SECONDS)
    eventually(lambda: node.slot("be-12").memory_limit_bytes == MIB, "the operator has sent its grant", SECONDS)
    node.pods.put("a", ended=True)
    eventually(lambda: "be-12" not in node.advertised(), "the slot ends when it is free", SECONDS)
    assert node.slot("be-0").memory_limit_bytes == 0


def test_a_pod_that_gets_a_slot_during_its_withdrawal_keeps_it(stopped_node: Node, tmp_path: Path) -> None:
    node, file = stopped_node, tmp_path / "nodes.yaml"
    file.write_text("{version: v1, slots: {be: 2}}")
    node.start("--configuration", str(file))
    eventually(lambda: node.kubelet.lists, "the kubelet was asked", SECONDS)
    (tmp_path / "new").write_text("{version: v1, slots: {be: 1}}")
    (tmp_path / "new").rename(file)
    eventually(lambda: node.advertised() == ["hp-0", "be-0"], "the slot be-1 is withdrawn", SECONDS)
    assert node.run("a", "be-1", grant(memoryLimitBytes=MIB)).slot.memory_limit_bytes == MIB
    assert node.advertised() == ["hp-0", "be-0", "be-1"]
    # A slot that was closed, as when the kubelet was away for long, also gets its pod's grant.
    assert node.run("b", "be-7", grant(memoryLimitBytes=2 * MIB)).slot.memory_limit_bytes == 2 * MIB
    assert node.advertised() == ["hp-0", "be-0", "be-1", "be-7"]
    with AgentClient(node.agent.root) as administrator, pytest.raises(RequestRefused, match="no slot 'be-9'"):
        administrator.prepare_slot(GPU, "be-9")


def test_a_failed_write_of_the_state_is_repeated(node: Node) -> None:
    obstacle = node.agent.root / "state.json.new"
    obstacle.mkdir()
    node.run("a", "be-0", grant(memoryLimitBytes=12_345))
    assert "12345" not in (node.agent.root / "state.json").read_text()
    obstacle.rmdir()
    eventually(lambda: "12345" in (node.agent.root / "state.json").read_text(), "the state is written", SECONDS)


def test_an_init_container_whose_slot_the_kubelet_does_not_list_runs_under_the_default_grant(node: Node) -> None:
    node.pods.put("a", grant(memoryLimitBytes=MIB))
    prepared = node.prepare_once("be-0")
    assert (prepared.pod, prepared.slot.memory_limit_bytes) == ("", 0)
    with ProtocolClient(node.agent.slot("be-0")).join():
        assert node.held() == ["be-0"]  # the slot still has processes


def test_many_containers_start_at_once(node: Node) -> None:
    for number in range(8):
        node.pods.put(f"p{number}", grant(memoryLimitBytes=(number + 1) * MIB))
        node.kubelet.give(f"p{number}", (GPU, f"be-{number}"))
    with futures.ThreadPoolExecutor(8) as pool:
        prepared = list(pool.map(node.prepare, [f"be-{number}" for number in range(8)]))
    assert [each.slot.memory_limit_bytes // MIB for each in prepared] == list(range(1, 9))
    assert [each.pod for each in prepared] == [f"default/p{number}" for number in range(8)]


def test_without_access_to_an_api_server_the_agent_says_what_to_configure(stopped_node: Node, tmp_path: Path) -> None:
    missing = ["--node-name", NODE, "--kubeconfig", str(tmp_path / "none"), "--operator", "a/b"]
    done = subprocess.run(stopped_node.agent.command(*missing), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no API server is known" in done.stderr


def test_without_an_operator_the_agent_says_what_to_configure(stopped_node: Node) -> None:
    command = stopped_node.agent.command("--node-name", NODE)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--operator is missing" in done.stderr


def test_an_agent_outside_a_cluster_does_not_load_the_cluster_package() -> None:
    packages = ("aiohttp", "orion.api_server", "orion.crds", "orion.node_agent.cluster", "yaml")
    program = "import sys, orion.node_agent.__main__, orion.node_agent.serving\n"
    program += f"print(*(name for name in sys.modules if name.startswith({packages})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    words = {"orion.crds", "orion.crds.allocation"}  # who gives slots, as an enumeration; it imports no API type
    assert set(done.stdout.split()) <= words
