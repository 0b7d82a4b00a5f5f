"""The CDI files of claims whose pods must not start without an agent name the program that waits for it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orion.injection.installing import AWAIT_AGENT
from tests.dra_driver.conftest import DriverNode, claim, result
from tests.node_agent.agent_in_cluster import grant
from tests.node_agent.operator_stand_in import StandInOperator
from tests.waiting import DEADLINE, eventually


def hooks(node: DriverNode, device: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.cdi_files()[f"orion.gpu/claim={device}"].get("hooks", [])
    return found


def test_what_the_hook_of_a_held_claim_runs(node: DriverNode) -> None:
    first, second = node.gpus()
    node.end("driver")
    node.configure(onNoAgent="hold")
    node.begin_driver()
    wide = [result(gpu, request="c1", share=gpu) for gpu in (first, second)]
    node.server.put(claim("one", result(first, share="s"), *wide))
    node.kubelet.prepared("one")
    (hook,) = hooks(node, "one_c0")
    assert hook["hookName"] == "createRuntime"
    program = Path(hook["path"])
    assert (program.name, program.parent.parent) == (AWAIT_AGENT, node.folder / "hook")
    slots = node.slots()
    folder = node.root / "gpus" / slots["one s"].replace("::", "/")
    assert hook["args"] == [hook["path"], "15", str(folder)]
    assert hook["timeout"] > 15
    (hook,) = hooks(node, "one_c1")
    assert hook["args"][2:] == [str(node.root / "gpus" / slots[f"one {gpu}"].replace("::", "/")) for gpu in node.gpus()]
    assert subprocess.run(hook["args"], stdin=subprocess.DEVNULL, timeout=DEADLINE).returncode == 0


def test_the_configuration_decides_also_for_claims_that_are_prepared(node: DriverNode) -> None:
    node.server.put(claim("one", result(node.gpus()[0])))
    node.kubelet.prepared("one")
    assert hooks(node, "one_c0") == []
    before = node.cdi_files()
    node.configure(onNoAgent="hold")
    eventually(lambda: len(hooks(node, "one_c0")) == 1)
    node.configure()
    eventually(lambda: node.cdi_files() == before)


def test_the_next_driver_and_the_next_version_write_their_own_program(node: DriverNode) -> None:
    node.configure(onNoAgent="hold")
    node.server.put(claim("one", result(node.gpus()[0])))
    node.kubelet.prepared("one")
    eventually(lambda: len(hooks(node, "one_c0")) == 1)
    written = node.cdi_files()
    node.end("driver")
    (path,) = node.cdi.glob("*.json")
    path.write_text(path.read_text().replace(written["orion.gpu/claim=one_c0"]["hooks"][0]["path"], "/earlier/program"))
    node.begin_driver()
    assert node.cdi_files() == written


def test_a_failclosed_pod_is_held_and_others_are_not(node: DriverNode) -> None:
    node.end("driver")
    (node.root / "dra-driver-fail-closed.json").write_text(json.dumps(["uid-strict"]))
    node.begin_driver()
    gpu = node.gpus()[0]
    node.server.put(claim("one", result(gpu), pods=("strict",)), claim("two", result(gpu), pods=("other",)))
    node.kubelet.prepare("one", "two")
    assert len(hooks(node, "one_c0")) == 1
    assert hooks(node, "two_c0") == []


@pytest.fixture
def operator(socket_folder: Path) -> Iterator[StandInOperator]:
    folder = socket_folder / "operator"
    folder.mkdir()
    operator = StandInOperator(folder)
    yield operator
    operator.stop()


def test_a_change_of_fail_closed_reaches_a_claim_that_is_prepared(
    bare_node: DriverNode, operator: StandInOperator
) -> None:
    node = bare_node
    operator.put("pod", grant(failClosed=False), namespace="n")
    node.agent_options = [*operator.options(), "--pod-resources", str(node.folder / "no-kubelet.sock")]
    node.begin_agent()
    node.begin_driver()
    node.server.put(claim("one", result(node.gpus()[0])))
    node.kubelet.prepared("one")
    assert hooks(node, "one_c0") == []
    operator.put("pod", grant(failClosed=True), namespace="n")
    eventually(lambda: len(hooks(node, "one_c0")) == 1)
    operator.put("pod", grant(failClosed=False), namespace="n")
    eventually(lambda: hooks(node, "one_c0") == [])
