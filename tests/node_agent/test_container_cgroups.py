"""The folder of a container's cgroup, from what /proc says of a process and from the folders of the hierarchy."""

from pathlib import Path

import pytest

from orion.node_agent.processes.pod_cgroups import container_cgroup

POD = "kubepods-burstable-pod5e4f6a2c_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice"
ABOVE = f"kubepods.slice/kubepods-burstable.slice/{POD}"
OTHER = "kubepods-burstable-podffffffff_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice"
SCOPE = "cri-containerd-0123.scope"
PROCESS = 7


def found(tmp_path: Path, line: str, *folders: str, inside: str = "") -> str | None:
    """Return the folder that is found, relative to the hierarchy.

    Args:
        tmp_path: the test's folder.
        line: the content of /proc/PID/cgroup.
        folders: the cgroups.
        inside: the cgroup of the process.
    """
    proc, hierarchy = tmp_path / "proc", tmp_path / "hierarchy"
    for folder in folders:
        (hierarchy / folder).mkdir(parents=True)
        (hierarchy / folder / "cgroup.procs").write_text(f"{PROCESS}\n" if folder == inside else "17\n")
    (proc / str(PROCESS)).mkdir(parents=True)
    (proc / str(PROCESS) / "cgroup").write_text(line)
    cgroup = container_cgroup(PROCESS, proc, hierarchy)
    return None if cgroup is None else str(cgroup.relative_to(hierarchy))


@pytest.mark.parametrize("line", [
    f"0::/{ABOVE}/{SCOPE}\n",
    f"0::/../../../../{ABOVE}/{SCOPE}\n",
    f"0::/../../{POD}/{SCOPE}\n",  # as a container of another pod sees it
    f"1:name=systemd:/x\n0::/../../{POD}/{SCOPE}\n",
])  # fmt: skip
def test_the_folder_is_found_wherever_the_agent_is(tmp_path: Path, line: str) -> None:
    whole = f"{ABOVE}/{SCOPE}"
    assert found(tmp_path, line, whole, f"kubepods.slice/{OTHER}/{SCOPE}", inside=whole) == whole


def test_a_folder_of_the_same_name_without_the_process_is_not_taken(tmp_path: Path) -> None:
    real = f"node.slice/{POD}/{SCOPE}"
    assert found(tmp_path, f"0::/../{POD}/{SCOPE}", f"{POD}/{SCOPE}", real, inside=real) == real
    assert container_cgroup(8, tmp_path / "proc", tmp_path / "hierarchy") is None


def test_a_cgroup_within_the_container_counts_as_the_container(tmp_path: Path) -> None:
    whole = f"{ABOVE}/{SCOPE}/a/b"
    assert found(tmp_path, f"0::/../../{POD}/{SCOPE}/a/b", whole, inside=whole) == f"{ABOVE}/{SCOPE}"


def test_a_cgroup_that_the_container_names_like_a_pod_is_within_the_container(tmp_path: Path) -> None:
    whole = f"{ABOVE}/{SCOPE}/{OTHER}/cri-containerd-4567.scope"
    assert found(tmp_path, f"0::/../../{POD}/{SCOPE}/{OTHER}/cri-containerd-4567.scope", whole, inside=whole) == (
        f"{ABOVE}/{SCOPE}"
    )


def test_the_cgroup_of_an_outer_pod_is_above_the_container(tmp_path: Path) -> None:
    outer = f"{ABOVE}/{SCOPE}"
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(f"0::/{outer}/agent.service\n")
    whole = f"{outer}/kubepods.slice/{OTHER}/cri-containerd-4567.scope"
    assert found(tmp_path, f"0::/{whole}\n", whole, inside=whole) == whole


def test_the_plain_names_of_cgroupfs_are_known(tmp_path: Path) -> None:
    whole = "kubepods/besteffort/pod5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a/0123"
    assert found(tmp_path, f"0::/{whole}", whole, inside=whole) == whole


@pytest.mark.parametrize("line", [
    f"4:memory:/{ABOVE}/{SCOPE}\n", f"0::/{ABOVE}\n", "0::/user.slice/session-1.scope\n", "0::/\n", "", "0::/../..\n",
])  # fmt: skip
def test_a_process_in_no_container_or_on_cgroup_v1_has_none(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, line, f"{ABOVE}/{SCOPE}", inside=f"{ABOVE}/{SCOPE}") is None
