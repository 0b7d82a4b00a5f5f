"""`orion top`, `orion explain slot` and the metrics, with two be programs that compete for the simulated GPU."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from orion.cli import agents
from orion.node_agent.api import agent_pb2
from tests.cli.orion_command import StartClient, orion
from tests.waiting import eventually

# Launches kernels of 200 us without a pause until its standard input ends. Prints a line after the first few.
CLIENT = """
import ctypes, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
image = b"orion-sim 1\\nkernel work duration_us=200 sms=132 params=\\n"
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"work") == 0
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
while not ended.is_set():
    for _ in range(20):
        assert cuda.cuLaunchKernel(kernel, 132, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    assert cuda.cuCtxSynchronize() == 0
"""


@pytest.fixture
def competing(root: Path, client: StartClient) -> Path:
    """The root of an agent with two be programs; the first, be-0, asks for twice as much."""
    for request in ("0.8", "0.4"):
        client("--priority", "be", "--request", request, source=CLIENT)
    return root


def called(*arguments: str) -> str:
    done = orion(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def slots(root: Path) -> dict[str, agent_pb2.Slot]:
    [gpu] = agents.ask(root).gpus
    return {slot.name: slot for slot in gpu.slots if slot.clients}


def test_both_slots_are_shown_with_what_they_were_due_and_why(competing: Path) -> None:
    def settled() -> dict[str, agent_pb2.Slot]:
        found = slots(competing)
        return found if len(found) == 2 and all(each.usage.second.turns > 0.99 for each in found.values()) else {}

    found = eventually(settled, "two slots take turns")
    first, second = (found[name].usage.second for name in ("be-0", "be-1"))
    assert first.due == pytest.approx(2 * second.due, rel=0.1)
    for parts in (first, second):
        assert parts.charged == pytest.approx(parts.due, abs=0.1)
        assert 0 < parts.measured < 1
        assert 0 < parts.waited <= 1

    shown = called("top", "--once", "--root", str(competing))
    rows = [line.split() for line in shown.splitlines() if re.search(r"be-[01] +0\.[84]", line)]
    assert [(row[1], row[2], row[3]) for row in rows] == [("be-0", "0.8", "-"), ("be-1", "0.4", "-")]
    assert all(0 < float(figure) <= 1 for row in rows for figure in row[4:8]), shown

    explained: dict[str, Any] = json.loads(called("explain", "slot", "be-1", "--json", "--root", str(competing)))
    [slot] = explained["slots"]
    assert (slot["gpu_index"], slot["name"], slot["request"]) == (0, "be-1", 0.4)
    reasons = {each["reason"]: each["message"] for each in slot["reasons"]}
    assert "add up to 1.2, so its 0.4 counts as 0.333" in reasons["RequestsScaled"]
    sentences = called("explain", "slot", "--root", str(competing))
    assert "so its 0.8 counts as 0.667" in sentences
    assert "slot be-1 (python" in sentences


def test_counters_of_slots_grow(competing: Path) -> None:
    log = (competing / "agent.log").read_text()
    address = next(line for line in log.splitlines() if " metrics: on " in line).rpartition(" ")[2]

    def counters() -> dict[tuple[str, str], float]:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=30) as answer:
            text = answer.read().decode()
        pattern = r'^orion_slot_(due|charged|measured|waited)_seconds_total\{.*slot="(be-\d)"\} (\S+)$'
        return {(kind, slot): float(value) for kind, slot, value in re.findall(pattern, text, re.MULTILINE)}

    kinds = {(kind, slot) for kind in ("due", "charged", "measured", "waited") for slot in ("be-0", "be-1")}
    eventually(lambda: counters().keys() == kinds, "both slots have all counters")
    before = counters()
    eventually(lambda: all(value > before[key] for key, value in counters().items()), "all counters grow")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(("be-9",), "there is no slot 'be-9'; the slots are: be-0"), (("--gpu", "7"), "there is no GPU '7'")],
)
def test_a_slot_or_gpu_that_does_not_exist_is_named(
    root: Path, client: StartClient, arguments: tuple[str, ...], sentence: str
) -> None:
    client("--priority", "be")
    done = orion("explain", "slot", *arguments, "--root", root)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr


def test_the_gpu_is_named_as_for_other_commands(root: Path, client: StartClient) -> None:
    client("--priority", "be")
    uuid = agents.ask(root).gpus[0].uuid
    for named in ("all", "0", uuid, uuid.upper()):
        assert "slot be-0 (python" in called("explain", "slot", "--gpu", named, "--root", str(root))


def test_without_an_agent_it_is_one_sentence(tmp_path: Path) -> None:
    done = orion("explain", "slot", "--root", tmp_path)
    assert done.returncode == 1
    assert "no agent listens" in done.stderr
