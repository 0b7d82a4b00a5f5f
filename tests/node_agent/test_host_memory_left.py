"""What cgroups and the node have left, from the files of the kernel, whatever these contain."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.processes import cgroup_folders
from orion.node_agent.processes.cgroup_folders import memory_path, split
from orion.node_agent.processes.host_memory import HostMemory, amount, droppable, figures

GIB = 1 << 30
POD = "kubepods.slice/kubepods-pod5e4f6a2c_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice"
SCOPE = f"{POD}/cri-containerd-0123.scope"
PROCESS = 7
FILES = ("memory.max", "memory.high", "memory.current", "memory.stat", "memory.limit_in_bytes", "memory.usage_in_bytes")
RUBBISH = st.none() | st.binary(max_size=60) | st.sampled_from([b"max\n", b"", b"-1\n", b"9223372036854771712\n"])


class Machine:
    """A /proc and cgroups in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.hierarchy = folder / "proc", folder / "cgroups"
        (self.proc / str(PROCESS)).mkdir(parents=True)
        self.memory = HostMemory(self.hierarchy, self.proc)

    def process(self, line: str, folder: str) -> None:
        (self.proc / str(PROCESS) / "cgroup").write_text(line)
        self.cgroup(folder, **{"cgroup.procs": f"1\n{PROCESS}\n"})

    def cgroup(self, folder: str, **files: str) -> Path:
        path = self.hierarchy / folder
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name.replace("__", ".")).write_text(text)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("line", [f"0::/{SCOPE}", f"0::/../../{SCOPE}", "0::/../cri-containerd-0123.scope"])
def test_a_process_is_charged_to_its_cgroup_and_to_all_above(machine: Machine, line: str) -> None:
    machine.process(line + "\n", SCOPE)
    names = [machine.memory.name(each) for each in machine.memory.cgroups(PROCESS)]
    assert names == [f"/{SCOPE}", f"/{POD}", "/kubepods.slice", "/"]
    assert machine.memory.cgroups(PROCESS), "the second time, where it was found before"


def test_with_v1_the_hierarchy_of_memory_counts(machine: Machine) -> None:
    machine.process("9:cpu:/x\n4:memory:/kubepods/burstable/pod1/c\n0::/\n", "memory/kubepods/burstable/pod1/c")
    names = [machine.memory.name(each) for each in machine.memory.cgroups(PROCESS)]
    assert names == ["/kubepods/burstable/pod1/c", "/kubepods/burstable/pod1", "/kubepods/burstable", "/kubepods", "/"]


def test_a_cgroup_that_is_not_visible_is_not_guessed(machine: Machine) -> None:
    assert machine.memory.cgroups(PROCESS) == []
    machine.process(f"0::/../{SCOPE}\n", f"another/{SCOPE}")
    machine.cgroup(f"another/{SCOPE}", **{"cgroup.procs": "17\n"})
    assert machine.memory.cgroups(PROCESS) == []
    machine.cgroup(f"another/{SCOPE}", **{"cgroup.procs": f"{PROCESS}\n"})
    assert machine.memory.cgroups(PROCESS) == [], "nobody searches again so soon"
    machine.process(f"0::/../../{SCOPE}\n", f"another/{SCOPE}")
    machine.cgroup(f"another/{SCOPE}", **{"cgroup.procs": "17\n"})
    assert machine.memory.cgroups(PROCESS) == []
    (machine.proc / str(PROCESS) / "cgroup").write_text("0::/../..\n")
    assert machine.memory.cgroups(PROCESS) == []


def test_a_process_that_ends_during_a_search_hinders_no_search_for_another(machine: Machine) -> None:
    (machine.proc / "8").mkdir()
    (machine.proc / "8" / "cgroup").write_text(f"0::/../{POD}/ended.scope\n")
    assert machine.memory.cgroups(8) == []
    machine.process(f"0::/../{SCOPE}\n", f"another/{SCOPE}")
    assert machine.memory.cgroups(PROCESS) != []


def test_a_cgroup_that_is_removed_during_a_search_does_not_end_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(folder: Path | str) -> Any:
        if Path(folder).name == "removed":
            raise FileNotFoundError(errno.ENOENT, "removed", str(folder))
        return scandir(folder)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scan)
    machine.process(f"0::/../{SCOPE}\n", f"one/two/{SCOPE}")
    for folder in ("a/removed", "one/removed", "removed"):
        machine.cgroup(folder)
    assert len(machine.memory.cgroups(PROCESS)) == 6


def test_a_process_in_a_deep_cgroup_that_is_not_visible_is_not_guessed(machine: Machine) -> None:
    machine.process("0::/.." + "/c" * 2000 + "\n", SCOPE)
    assert machine.memory.cgroups(PROCESS) == []


def test_no_name_of_a_cgroup_looks_like_another_line(machine: Machine) -> None:
    """The kernel lets only the line feed not be part of a name."""
    for end in "\v\f\r\x1c\x1d\x1e\x85\u2028\u2029":
        assert memory_path(f"0::/a{end}4:memory:/b\n") == ("", f"/a{end}4:memory:/b")


def test_many_cgroups_of_one_container_hide_no_other_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_folders, "FOLDERS_MAX", 8)
    machine.process("0::/../b.scope\n", "kubepods.slice/pod.slice/b.scope")
    for number in range(20):
        machine.cgroup(f"kubepods.slice/pod.slice/a.scope/{number}/x")
    assert len(machine.memory.cgroups(PROCESS)) == 4
    read: list[str] = []
    monkeypatch.setattr(cgroup_folders, "contains", lambda folder, _: read.append(str(folder)))
    (machine.proc / str(PROCESS) / "cgroup").write_text("0::/../../another.scope\n")
    assert machine.memory.cgroups(PROCESS) == []
    assert len(read) < 5 * 8


def test_the_lower_limit_counts_and_files_that_are_written_can_be_dropped(machine: Machine) -> None:
    stat = f"anon 5\ninactive_file {GIB}\nactive_file {GIB}\nfile_dirty {GIB // 2}\nfile_writeback 0\n"
    files = {
        "memory.max": f"{8 * GIB}\n",
        "memory.high": "max\n",
        "memory.current": f"{7 * GIB}\n",
        "memory.stat": stat,
    }
    assert machine.memory.left(machine.cgroup("a", **files)) == 2.5 * GIB
    assert machine.memory.left(machine.cgroup("a", **files | {"memory.high": f"{7 * GIB}"})) == 1.5 * GIB
    assert machine.memory.left(machine.cgroup("a", **files | {"memory.high": "1"})) == 0, "it is above its limit"


def test_with_v1_the_figures_of_all_cgroups_below_count(machine: Machine) -> None:
    stat = f"inactive_file 0\ndirty 0\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}\ntotal_dirty {GIB}\n"
    limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
    cgroup = machine.cgroup("memory/a", **{limit: f"{8 * GIB}\n", used: f"{7 * GIB}\n", "memory.stat": stat})
    assert machine.memory.left(cgroup) == 2 * GIB
    machine.cgroup("memory/a", **{limit: "9223372036854771712\n"})
    assert machine.memory.left(cgroup) is None


def test_without_a_limit_or_without_files_nothing_is_known(machine: Machine) -> None:
    assert machine.memory.left(machine.cgroup("a")) is None
    assert machine.memory.left(machine.cgroup("a", **{"memory.max": "max\n", "memory.current": "5\n"})) is None
    assert machine.memory.left(machine.cgroup("a", **{"memory.max": "9\n", "memory.current": "x"})) is None
    assert machine.memory.left(machine.cgroup("a", **{"memory.max": "9\n", "memory.current": "5\n"})) == 4


def test_the_node_keeps_a_margin(machine: Machine) -> None:
    assert machine.memory.node_left() is None
    (machine.proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    3145728 kB\nHugePages_Free: 0\n")
    assert machine.memory.node_left() == 2 * GIB
    (machine.proc / "meminfo").write_text("MemAvailable: 5 kB\n")
    assert machine.memory.node_left() == 0


@given(st.fixed_dictionaries(dict.fromkeys(FILES, RUBBISH)), st.integers(0, 2**62), st.integers(0, 2**62))
def test_whatever_the_files_say_the_answer_is_an_amount_within_the_limit_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, bytes | None], limit: int, used: int
) -> None:
    folder = tmp_path_factory.mktemp("cgroup")
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_bytes(text)
    left = HostMemory(folder).left(folder)
    assert left is None or left >= 0
    for name in ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.high"):
        (folder / name).unlink(missing_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    left = HostMemory(folder).left(folder)
    assert left is None if limit == 2**62 or used == 2**62 else left is not None and 0 <= left <= limit


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert (found := amount(text)) is None or 0 <= found < 2**62
    assert droppable(figures(text)) >= 0
    assert all(value >= 0 for value in figures(text, ":").values())
    controller, path = memory_path(text)
    assert controller in ("", "memory")
    assert ".." not in split(path)[1].split("/")
