"""Processes end, files vanish, nobody answers: no slot is lost, none is given twice, pods run without manual help."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orion.hook import KNOWN_LIMIT
from orion.injection.mount_sources import slot_directory
from orion.injection.slots import parse
from tests.dra_driver.conftest import DriverNode, claim, result
from tests.dra_driver.stand_in_kubelet import Failed
from tests.waiting import eventually


class Call:
    """A call of the kubelet that runs beside the test."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.result: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:
            self.result = error

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> Any:
        self._thread.join(60)
        assert not self.runs
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def prepare(node: DriverNode, *uids: str, gpu: int = 0) -> None:
    uuid = node.gpus()[gpu]
    node.server.put(*(claim(uid, result(uuid)) for uid in uids))
    for uid in uids:
        node.kubelet.prepared(uid)


def test_the_next_driver_makes_the_files_again_before_the_kubelet_finds_it(node: DriverNode) -> None:
    prepare(node, "one", "two")
    files = node.cdi_files()
    node.end("driver")
    shutil.rmtree(node.cdi)
    shutil.rmtree(node.root / "mps")
    (node.records.parent / "leftover.sock").touch()
    node.begin_driver()
    assert node.cdi_files() == files
    sources = [mount["hostPath"] for edits in files.values() for mount in edits["mounts"]]
    assert all((node.folder / source).exists() for source in sources)
    node.kubelet.unprepare("one", "two")
    assert node.slots() == {}


def test_cdi_files_of_no_claim_are_removed_at_the_start(node: DriverNode) -> None:
    prepare(node, "one")
    node.end("driver")
    (node.cdi / "orion.gpu-claim_gone.json").write_text("{}")
    (node.cdi / "nvidia.json").write_text('{"kind": "nvidia.com/gpu", "devices": []}')
    node.begin_driver()
    assert sorted(path.name for path in node.cdi.iterdir()) == ["nvidia.json", "orion.gpu-claim_one.json"]


@pytest.mark.parametrize("content", ["", '{"version": 1, "uid"', '{"version": 2}', "rubbish"])
def test_a_claim_whose_record_cannot_be_read_keeps_its_slot(node: DriverNode, content: str) -> None:
    prepare(node, "one", "two", "three")  # all be slots of the GPU
    slots = node.slots()
    node.end("driver")
    (node.records / "two.json").write_text(content)
    node.begin_driver()
    assert "cannot be used" in node.log("driver")
    node.kubelet.prepared("two")
    assert node.slots() == slots
    node.kubelet.unprepare("two")
    assert "two" not in " ".join(node.slots())


def test_a_record_of_another_boot_is_prepared_again(node: DriverNode) -> None:
    prepare(node, "one")
    node.end("driver")
    node.end("agent")
    path = node.records / "one.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
    shutil.rmtree(node.root)
    shutil.rmtree(node.cdi)
    node.begin_driver()
    assert list(node.cdi_files()) == ["orion.gpu/claim=one_c0"]
    node.begin_agent()
    node.kubelet.prepared("one")
    assert list(node.slots()) == ["one c0/" + node.gpus()[0].lower()]


def test_a_claim_whose_slot_the_configuration_took_away_gets_another_after_a_reboot(node: DriverNode) -> None:
    prepare(node, "one")
    node.end("driver")
    node.end("agent")
    path = node.records / "one.json"
    path.write_text(path.read_text().replace("::be-", "::be-9").replace('"boot":"', '"boot":"not-'))
    shutil.rmtree(node.root)
    node.begin_driver()
    node.begin_agent()
    node.kubelet.prepared("one")
    assert list(node.slots()) == ["one c0/" + node.gpus()[0].lower()]


def test_two_drivers_run_side_by_side(node: DriverNode) -> None:
    prepare(node, "one")
    first = node.kubelet.endpoint
    node.begin_driver("second")
    assert node.kubelet.endpoint != first
    prepare(node, "two")
    node.end("driver", signal.SIGTERM)
    node.kubelet.look()
    prepare(node, "three")
    assert len(set(node.slots().values())) == 3
    node.kubelet.unprepare("one", "two", "three")
    assert node.slots() == {}


def test_the_old_driver_takes_over_again_if_the_new_one_ends(node: DriverNode) -> None:
    first = node.kubelet.endpoint
    node.begin_driver("second")
    node.end("second", signal.SIGTERM)
    assert node.kubelet.look() == first
    prepare(node, "one")


def test_a_driver_whose_sockets_are_removed_makes_them_again(node: DriverNode) -> None:
    shutil.rmtree(node.kubelet.registry)
    assert node.kubelet.look() == ""
    eventually(node.kubelet.look, "the kubelet finds the driver again")
    prepare(node, "one")


def test_a_driver_ends_once_somebody_has_removed_a_folder_that_its_container_mounts(bare_node: DriverNode) -> None:
    bare_node.cdi.mkdir()
    mounted = os.open(bare_node.cdi, os.O_PATH)
    folder, bare_node.cdi = bare_node.cdi, Path(f"/proc/{os.getpid()}/fd/{mounted}")
    bare_node.begin_driver()
    shutil.rmtree(folder)
    folder.mkdir()
    eventually(lambda: "somebody has removed" in bare_node.log("driver"), lambda: bare_node.log("driver"))
    bare_node.end("driver")
    os.close(mounted)


def test_prepare_waits_for_an_agent(bare_node: DriverNode) -> None:
    node = bare_node
    node.begin_agent()
    gpu = node.gpus()[0]
    node.end("agent")
    node.begin_driver()
    node.server.put(claim("one", result(gpu)))
    call = Call(lambda: node.kubelet.prepared("one"))
    eventually(lambda: "connected" not in node.log("driver") and call.runs)
    node.begin_agent()
    assert len(call.end()) == 1
    assert list(node.slots().values()) == [f"{gpu}::be-0"]


def test_without_an_agent_a_pod_starts_with_a_slot_that_the_next_agent_learns(node: DriverNode) -> None:
    prepare(node, "one")
    gpu = node.gpus()[0]
    node.server.put(claim("two", result(gpu)))
    node.end("agent")
    limits = [slot_directory(node.root, parse(f"{gpu}::be-{number}")) / KNOWN_LIMIT for number in range(2)]
    for limit in limits:
        limit.write_text("1048576\n")
    assert len(node.kubelet.prepared("two")) == 1
    assert [limit.exists() for limit in limits] == [True, False]  # the first slot's container keeps its limit
    node.begin_agent()
    eventually(lambda: sorted(node.slots().values()) == [f"{gpu}::be-0", f"{gpu}::be-1"])


def test_with_hold_a_pod_waits_until_an_agent_answers(node: DriverNode) -> None:
    node.configure(onNoAgent="hold")
    node.end("driver")
    node.begin_driver()
    gpu = node.gpus()[0]
    node.server.put(claim("one", result(gpu)))
    node.end("agent")
    with pytest.raises(Failed, match=r"the node's agent does not answer for .*, and onNoAgent is hold"):
        node.kubelet.prepared("one", seconds=7)
    call = Call(lambda: node.kubelet.prepared("one"))
    node.begin_agent()
    assert len(call.end()) == 1


def test_an_agent_that_comes_gives_up_slots_that_no_driver_knows(node: DriverNode) -> None:
    prepare(node, "one", "two")
    node.end("driver")
    (node.records / "two.json").unlink()
    node.server.claims.pop("claim-two")
    node.begin_driver()
    eventually(lambda: [key.partition(" ")[0] for key in node.slots()] == ["one"])
    (node.records / "one.json").unlink()
    node.end("agent")
    node.begin_agent()
    node.kubelet.prepared("one")
    assert [key.partition(" ")[0] for key in node.slots()] == ["one"]


def test_unprepare_needs_no_agent(node: DriverNode) -> None:
    prepare(node, "one")
    node.end("agent")
    node.kubelet.unprepare("one")
    assert node.cdi_files() == {}
    node.begin_agent()
    eventually(lambda: node.slots() == {})
    eventually(lambda: list(node.records.iterdir()) == [])


def test_unprepare_needs_no_api_server_and_prepare_waits_for_it(node: DriverNode) -> None:
    prepare(node, "one")
    node.server.status = 503
    node.kubelet.unprepare("one")
    node.server.put(claim("two", result(node.gpus()[0])))
    with pytest.raises(Failed, match="the API server did not say in time what claim n/claim-two was allocated"):
        node.kubelet.prepared("two", seconds=7)
    call = Call(lambda: node.kubelet.prepared("two"))
    node.server.status = 0
    assert len(call.end()) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_prepare_waits_for_a_token_or_rights_that_are_being_renewed(node: DriverNode, status: int) -> None:
    node.server.status = status
    node.server.put(claim("one", result(node.gpus()[0])))
    with pytest.raises(Failed, match=f"claim n/claim-one .*{status}.*check the driver's token and rights"):
        node.kubelet.prepared("one", seconds=7)
    before = node.server.reads
    call = Call(lambda: node.kubelet.prepared("one"))
    eventually(lambda: node.server.reads > before)
    assert call.runs
    node.server.status = 0
    assert len(call.end()) == 1


def test_prepare_waits_for_a_slot_that_is_about_to_be_free(node: DriverNode) -> None:
    prepare(node, "one", "two", "three")
    gpu = node.gpus()[0]
    node.server.put(claim("four", result(gpu)))
    with pytest.raises(Failed, match=f"GPU {gpu} has no free be slot: others hold all 3"):
        node.kubelet.prepared("four", seconds=6)
    call = Call(lambda: node.kubelet.prepared("four"))
    node.kubelet.unprepare("two")
    assert len(call.end()) == 1
    assert f"{gpu}::be-1" in node.slots().values()


def test_two_calls_for_a_claim_wait_for_each_other_and_the_second_says_so(node: DriverNode) -> None:
    node.server.put(claim("one", result(node.gpus()[0])))
    node.server.status = 503
    first = Call(lambda: node.kubelet.prepared("one"))
    eventually(lambda: node.server.reads)
    with pytest.raises(Failed, match="an earlier call for claim n/claim-one still waits"):
        node.kubelet.prepared("one", seconds=7)
    node.server.status = 0
    assert len(first.end()) == 1


def test_a_driver_that_ends_answers_the_calls_that_wait(node: DriverNode) -> None:
    prepare(node, "zero")
    gpu = node.gpus()[0]
    node.server.put(*(claim(uid, result(gpu)) for uid in ("one", "two", "three")))
    node.configure(onNoAgent="hold")
    eventually(lambda: "onNoAgent hold" in node.log("driver"))
    node.end("agent")
    before = node.server.reads
    calls = [Call(lambda uid=uid: node.kubelet.prepared(uid)) for uid in ("one", "two")]  # type: ignore[misc]
    eventually(lambda: node.server.reads >= before + 2)
    node.server.status = 503
    calls.append(Call(lambda: node.kubelet.prepared("three")))
    eventually(lambda: node.server.reads >= before + 3)
    node.end("driver", signal.SIGTERM)
    for call in calls:
        with pytest.raises(Failed, match="orion: the DRA driver ends; the kubelet tries again"):
            call.end()
    node.server.status = 0
    node.begin_driver()
    node.begin_agent()
    answers = node.kubelet.prepare("one", "two")
    assert not any(answer.error for answer in answers.values())
    assert len(set(node.slots().values())) == 3


def test_an_agent_that_answers_too_late_learns_what_was_given_and_taken_back(node: DriverNode) -> None:
    prepare(node, "old")
    node.server.put(claim("new", result(node.gpus()[0])))
    node.signal("agent", signal.SIGSTOP)
    node.kubelet.prepared("new")
    node.kubelet.unprepare("old")
    assert "while no agent answers" in node.log("driver")
    node.signal("agent", signal.SIGCONT)
    eventually(lambda: [each.partition(" ")[0] for each in node.slots()] == ["new"])
    eventually(lambda: not (node.records / "old.json").exists())
