"""Pods over the real protocol: admission, starts and restarts, with and without an agent."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orion.device_plugin.refused import NO_DEVICE
from orion.hook import KNOWN_LIMIT
from orion.injection.mount_sources import slot_directory
from orion.injection.slots import parse
from tests.device_plugin.conftest import BE, HP, Node, mounts
from tests.device_plugin.plugin_process import DEADLINE, eventually
from tests.device_plugin.scripted_agent import GPUS, devices
from tests.device_plugin.stand_in_kubelet import AdmissionFailed, StartFailed
from tests.hook.containers import require_root
from tests.loaded import BY_PYTHON


def test_a_container_gets_its_slot_and_the_agent_prepares_it(node: Node) -> None:
    given = node.kubelet.admit("pod", "main", be=1)
    assert node.agent.prepared == []
    answer = node.kubelet.start_container("pod", "main")
    assert node.agent.prepared == given
    assert mounts(answer)[f"/run/orion/slots/{GPUS[0]}"] == node.root / "gpus" / GPUS[0] / given[0].partition("::")[2]
    assert answer.envs["ORION_SIM_VISIBLE_GPUS"] == GPUS[0]
    for folder in ("", "gpus", f"gpus/{GPUS[0]}", f"gpus/{GPUS[0]}/be-0", "mps", f"mps/{GPUS[0]}/clients"):
        assert (node.root / folder).stat().st_mode & 0o777 == 0o755


def test_a_plugin_that_python_starts_does_the_same(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BY_PYTHON, "0")
    node.replace_plugin()
    test_a_container_gets_its_slot_and_the_agent_prepares_it(node)


def test_two_containers_of_a_pod_have_separate_slots(node: Node) -> None:
    first, second = node.kubelet.admit("pod", "one", be=1), node.kubelet.admit("pod", "two", be=1)
    assert first != second
    for container in ("one", "two"):
        node.kubelet.start_container("pod", container)
    assert sorted(node.agent.prepared) == sorted(first + second)


def test_a_container_with_several_gpus_gets_one_slot_of_each(node: Node) -> None:
    node.agent.send(devices(4))
    node.until_allocatable(12, hp=4)
    given = node.kubelet.admit("pod", "main", be=3)
    assert len({device.partition("::")[0] for device in given}) == 3


def test_a_container_with_two_slots_of_a_gpu_is_accepted_and_never_starts(node: Node) -> None:
    node.kubelet.admit("greedy", "main", be=2)
    for _ in range(2):
        with pytest.raises(StartFailed, match=r"two slots of one GPU.*delete the pod"):
            node.kubelet.start_container("greedy", "main")
        node.replace_plugin()
    # A kubelet that has just started calls no plugin. The answer itself then prevents the start.
    node.plugins[-1].end()
    node.kubelet.restart()
    answer = node.kubelet.start_container("greedy", "main")
    assert [device.host_path for device in answer.devices] == [NO_DEVICE]
    assert not answer.mounts
    assert not answer.envs
    assert node.agent.prepared == []
    node.kubelet.remove("greedy")
    node.plugin()
    node.until_allocatable(3, hp=1)
    node.kubelet.admit("next", "main", be=1)
    node.kubelet.start_container("next", "main")


def test_a_restart_uses_the_first_answer_and_prepares_the_slot_again(node: Node) -> None:
    given = node.kubelet.admit("pod", "main", be=1)
    first = node.kubelet.start_container("pod", "main")
    node.kubelet.restart()
    node.until_allocatable(3, hp=1)
    assert node.kubelet.start_container("pod", "main") == first
    assert node.agent.prepared == given * 2


def test_without_an_agent_slots_are_allocated_and_containers_start(node: Node) -> None:
    node.agent.stop()
    given = node.kubelet.admit("pod", "main", be=1)
    node.kubelet.start_container("pod", "main")
    node.plugins[0].until_logged(f"a container with {given[0]} starts while no agent answers")


def test_a_container_that_no_agent_knows_does_not_keep_to_the_limit_of_an_earlier_one(node: Node) -> None:
    (given,) = node.kubelet.admit("pod", "main", be=1)
    node.kubelet.start_container("pod", "main")
    limit, others = slot_directory(node.root, parse(given)) / KNOWN_LIMIT, list[list[str]]()
    limit.write_text("1048576\n")
    node.kubelet.start_container("pod", "main")
    assert limit.exists()
    node.agent.stop()
    node.kubelet.start_container("pod", "main")
    assert limit.exists()  # a container that starts again keeps to the limit of its own pod
    node.replace_plugin()
    node.kubelet.start_container("pod", "main")
    assert limit.exists()
    node.kubelet.remove("pod")
    while (again := node.kubelet.admit(f"next-{len(others)}", "main", be=1)) != [given]:
        others.append(again)
    node.kubelet.start_container(f"next-{len(others)}", "main")
    assert not limit.exists()


def test_a_start_waits_for_an_agent_that_is_being_replaced(bare_node: Node) -> None:
    node = bare_node
    node.options = ["--agent-patience", "25"]
    node.agent.start()
    node.kubelet.start()
    plugin = node.plugin()
    node.until_allocatable(3, hp=1)
    given = node.kubelet.admit("pod", "main", be=1)
    node.agent.stop()
    eventually(lambda: plugin.metrics()["orion_device_plugin_agent_connected"] == 0, "the plugin is disconnected")
    with ThreadPoolExecutor(1) as kubelet:
        starting = kubelet.submit(node.kubelet.start_container, "pod", "main")
        node.agent.start()
        assert starting.result(DEADLINE)
    assert node.agent.prepared == given
    assert "starts while no agent answers" not in plugin.log


def test_with_hold_a_container_waits_until_the_agent_is_back(bare_node: Node) -> None:
    node = bare_node
    node.options += ["--configuration", str(node.write_configuration(onNoAgent="hold"))]
    node.agent.start()
    node.kubelet.start()
    node.plugin()
    node.until_allocatable(3, hp=1)
    node.agent.stop()
    node.kubelet.admit("pod", "main", be=1)
    with pytest.raises(StartFailed, match="onNoAgent is hold"):
        node.kubelet.start_container("pod", "main")
    node.agent.start()
    node.until_connected()
    node.kubelet.start_container("pod", "main")


def test_fail_closed_waits_for_the_agent_at_every_later_start(node: Node) -> None:
    node.agent.fail_closed = True
    for pod in ("closed", "open"):
        node.kubelet.admit(pod, "main", be=1)
        node.kubelet.start_container(pod, "main")
        node.agent.fail_closed = False
    node.agent.stop()
    with pytest.raises(StartFailed, match="failClosed"):
        node.kubelet.start_container("closed", "main")
    node.kubelet.start_container("open", "main")
    node.replace_plugin()
    with pytest.raises(StartFailed, match="failClosed"):
        node.kubelet.start_container("closed", "main")
    node.agent.start()
    node.until_connected()
    node.kubelet.start_container("closed", "main")


def test_an_agent_that_does_not_know_the_pod_yet_does_not_change_fail_closed(node: Node) -> None:
    node.kubelet.admit("pod", "main", be=1)
    for node.agent.fail_closed, node.agent.knows_pods in ((True, True), (False, False)):
        node.kubelet.start_container("pod", "main")
    node.agent.stop()
    with pytest.raises(StartFailed, match="failClosed"):
        node.kubelet.start_container("pod", "main")
    node.agent.knows_pods = True
    node.agent.start()
    node.until_connected()
    node.kubelet.start_container("pod", "main")
    node.agent.stop()
    node.kubelet.start_container("pod", "main")  # the agent's last answer said that the pod is not failClosed


def test_fail_closed_counts_that_the_agent_reports_after_the_start(node: Node) -> None:
    node.agent.knows_pods = False
    node.kubelet.admit("pod", "main", be=1)
    node.kubelet.start_container("pod", "main")
    node.agent.send(devices(fail_closed=["pod"]))
    file = node.root / "device-plugin-fail-closed.json"
    eventually(lambda: file.exists() and "pod" in file.read_text(), "the list is saved")
    node.agent.send(devices())  # while a container restarts, the agent does not know who holds its slot
    node.agent.stop()
    with pytest.raises(StartFailed, match="failClosed"):
        node.kubelet.start_container("pod", "main")
    node.replace_plugin()
    with pytest.raises(StartFailed, match="failClosed"):
        node.kubelet.start_container("pod", "main")
    node.agent.start()
    node.agent.send(devices(fail_open=["pod"]))
    eventually(lambda: "pod" not in file.read_text(), "the list is saved")
    node.agent.stop()
    node.kubelet.start_container("pod", "main")


def test_the_reason_of_an_agent_that_refuses_is_reported(node: Node) -> None:
    node.kubelet.admit("pod", "main", be=1)
    node.agent.refuses = "there is no such GPU here: it has fallen off the bus"
    with pytest.raises(StartFailed, match="fallen off the bus"):
        node.kubelet.start_container("pod", "main")


def test_missing_sources_of_mounts_are_restored_before_a_start(node: Node) -> None:
    node.kubelet.admit("pod", "main", be=1)
    sources = mounts(node.kubelet.start_container("pod", "main"))
    shutil.rmtree(node.root / "gpus")
    for name in ("liborion_hook.so", "ld.so.preload"):  # a container runtime creates a missing source as a folder
        (sources["/run/orion/lib"] / name).unlink()
        (sources["/run/orion/lib"] / name).mkdir()
    node.kubelet.start_container("pod", "main")
    for path in sources.values():
        assert path.exists() or path.name == "sim"
    assert (sources["/run/orion/lib"] / "liborion_hook.so").is_file()
    assert (sources["/run/orion/lib"] / "ld.so.preload").is_file()


def test_after_a_reboot_a_pod_starts_with_its_slot(node: Node) -> None:
    given = node.kubelet.admit("pod", "main", be=1)
    sources = mounts(node.kubelet.start_container("pod", "main"))
    # Everything below /run is gone, including sockets. The kubelet starts first, and the runtime creates missing
    # sources.
    node.plugins[0].close()
    node.kubelet.stop()
    node.agent.stop()
    shutil.rmtree(node.root)
    shutil.rmtree(node.hook_folder)
    node.kubelet.start()
    assert node.kubelet.start_container("pod", "main")  # the kubelet has no options yet, so it calls no plugin
    for path in sources.values():
        path.mkdir(parents=True, exist_ok=True)
    (sources["/run/orion/lib"] / "ld.so.preload").mkdir()
    node.plugin().until_logged("metrics: on http")
    assert node.kubelet.allocatable(BE) == 0
    node.agent.start()
    node.until_allocatable(3, hp=1)
    node.kubelet.start_container("pod", "main")
    assert node.agent.prepared[-1:] == given
    assert (sources["/run/orion/lib"] / "liborion_hook.so").is_file()
    assert (sources["/run/orion/lib"] / "ld.so.preload").is_file()
    assert [entry[3] for entry in node.kubelet.checkpoint()] == [frozenset(given)]
    others = node.kubelet.admit("one", "main", be=1) + node.kubelet.admit("two", "main", be=1)
    assert len({*given, *others}) == 3


def test_sixty_four_pods_get_separate_slots_on_eight_gpus(node: Node) -> None:
    node.agent.send(devices(8, be=8, numa_node=0))
    node.until_allocatable(64, hp=8)
    given = [node.kubelet.admit(f"pod-{number}", "main", be=1)[0] for number in range(64)]
    assert len(set(given)) == 64
    first = [device.partition("::")[0] for device in given[:8]]
    assert len(set(first)) == 8  # spread, although the snapshot shows none of them
    with pytest.raises(AdmissionFailed, match="requested number"):
        node.kubelet.admit("late", "main", be=1)


def test_unknown_and_mixed_ids_are_logged_and_refused_at_the_start(node: Node) -> None:
    for ids, sentence in (
        (["GPU-x::be-0"], "there is no slot"),
        (["what"], "is not a slot of Orion"),
        ([f"{GPUS[0]}::hp-0"], "is not a slot of orion.gpu/be"),
    ):
        assert node.kubelet.ask(BE, "Allocate", ids) == ""  # an error would fail the pod
        node.plugins[0].until_logged(sentence)
        reported = node.kubelet.ask(BE, "PreStartContainer", ids)
        assert reported.startswith("orion: ") or ids == ["GPU-x::be-0"]
    metrics = node.plugins[0].metrics()
    labels = f'resource="{BE}",method="Allocate",result="refused"'
    count = next(value for name, value in metrics.items() if "seconds_count" in name and sorted_labels(name) == labels)
    assert count == 3


def test_a_preference_is_never_an_error(node: Node) -> None:
    assert node.kubelet.preferred(BE, [f"{GPUS[0]}::be-1", "what"], 1) == [f"{GPUS[0]}::be-1"]
    assert node.kubelet.preferred(BE, ["what"], 1) == ["what"]  # the kubelet's own choice


def sorted_labels(name: str) -> str:
    found = dict(each.split("=", 1) for each in name.partition("{")[2].rstrip("}").split(","))
    return ",".join(f"{key}={found[key]}" for key in ("resource", "method", "result"))


@pytest.fixture
def small_disk(socket_folder: Path) -> object:
    """A root directory on a separate file system of 256 KiB, as /run can be."""
    require_root()
    root = socket_folder / "root"
    root.mkdir()
    options = ["-o", "size=256k,nr_inodes=64"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "orion-test", root], check=True)
    yield root
    subprocess.run(["umount", "--lazy", root], check=True)


def fill(folder: Path) -> None:
    """Fill the file system below a folder: use up its inodes and its space."""
    try:
        for number in range(1_000):
            (folder / f"filler-{number}").write_bytes(b"x" * 4096)
    except OSError:
        pass


def test_a_full_file_system_is_reported_and_does_not_end_the_plugin(small_disk: Path, bare_node: Node) -> None:
    node = bare_node
    node.agent.start()
    node.kubelet.start()
    plugin = node.plugin()
    node.until_allocatable(3, hp=1)
    fill(small_disk)
    node.kubelet.admit("pod", "main", be=1)
    with pytest.raises(StartFailed, match=r"cannot be made.*No space left"):
        node.kubelet.start_container("pod", "main")
    node.agent.send(devices(1, be=2))
    node.until_allocatable(2, hp=1)
    plugin.until_logged("its snapshot cannot be saved for the next process")
    for path in small_disk.glob("filler-*"):
        path.unlink()
    node.kubelet.start_container("pod", "main")
    assert plugin.running


def test_hp_and_be_are_counted_separately(node: Node) -> None:
    node.kubelet.admit("chat", "main", hp=1)
    assert node.kubelet.free(HP) == []
    assert len(node.kubelet.free(BE)) == 3
