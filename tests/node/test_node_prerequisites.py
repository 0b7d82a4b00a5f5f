"""The programs and rights that a node needs, their sources, and the errors if they are missing. Starts no node."""

import ipaddress
from pathlib import Path

import pytest

from testbed import binaries, cgroups, packages, place
from testbed.errors import Missing
from tools.tiers import run as tiers

# Stand-ins: `apt-get download` puts an archive into the working folder, and `dpkg-deb -x` unpacks it.
APT = """#!/bin/sh
echo apt-get "$@" >> $CALLS
[ "$REFUSED" ] && { echo 'E: no such package' >&2; exit 100; }
: > all.deb
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin" "$3/usr/sbin" "$3/usr/lib/cni" "$3/bin"
for each in usr/sbin/runc usr/sbin/xtables-nft-multi \
  bin/busybox usr/lib/cni/ptp usr/lib/cni/host-local usr/lib/cni/loopback; do
  echo '#!/bin/sh' > "$3/$each"; chmod +x "$3/$each"
done
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with root and cgroups whose PATH has no program of a node; returns the folder on PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("CI", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "mkdir", "chmod", "ip", "mount"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(packages, "CNI_FOLDERS", ())
    monkeypatch.setattr(packages, "why_not", lambda: "")
    return folder


def program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_missing_programs_are_downloaded_once_and_unpacked_into_the_cache(machine: Path, tmp_path: Path) -> None:
    program(machine / "apt-get", APT)
    program(machine / "dpkg-deb", DPKG)
    with pytest.raises(Missing, match=r"runc, .*CNI plugins, a static busybox: neither on this machine nor"):
        packages.find()
    printed: list[str] = []
    packages.bring_missing(printed.append)
    packages.bring_missing(printed.append)
    assert len(printed) == 1
    assert "nothing is installed" in printed[0]
    assert (tmp_path / "calls").read_text().splitlines() == [f"apt-get download {' '.join(packages.PACKAGES)}"]
    runtime = packages.find()
    assert Path(runtime.program("iptables-save")).parent == packages.unpacked() / "tables"
    assert runtime.cni == packages.unpacked() / "usr/lib/cni"


def test_programs_of_the_machine_come_first(machine: Path) -> None:
    program(machine / "apt-get", APT)
    program(machine / "dpkg-deb", DPKG)
    packages.bring_missing(lambda line: None)
    program(machine / "runc")
    assert packages.find().program("runc") == str(machine / "runc")
    assert packages.find().program("iptables") != str(machine / "iptables")


def test_without_packages_the_reason_is_reported_and_our_own_lists_are_tried(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Missing, match=r"there is no apt-get here; install what a node needs: runc, "):
        packages.bring_missing(lambda line: None)
    program(machine / "apt-get", APT)
    program(machine / "dpkg-deb", DPKG)
    monkeypatch.setenv("REFUSED", "1")
    with pytest.raises(Missing, match=r"could not download a node's packages: E: no such package"):
        packages.bring_missing(lambda line: None)
    assert "Dir::State::Lists" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_a_node_tier_that_cannot_run_is_named_and_fails_in_ci(
    machine: Path, monkeypatch: pytest.MonkeyPatch, ci: str, status: int
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(packages, "why_not", lambda: "a node needs root")
    assert tiers.run("node", []) == (status, "not run (a node needs root)")


def test_the_last_line_names_the_cgroup_mode_that_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    for here, other in (("v1", "v2"), ("v2", "v1")):
        monkeypatch.setattr(cgroups, "mode", lambda mode=here: mode)
        assert tiers.TIERS["node"].untested() == f" on cgroup {here} (cgroup {other} not tested)"


def test_addresses_to_which_the_machine_has_a_route_are_not_used() -> None:
    ranges = list(place.ranges_beside([ipaddress.IPv4Network("198.18.0.0/16"), ipaddress.IPv4Network("198.19.8.0/30")]))
    assert ranges[0] == (17, ipaddress.IPv4Network("198.19.16.0/20"))
    assert not any(each.overlaps(ipaddress.IPv4Network("198.18.0.0/16")) for _, each in ranges)
    assert not any(each.overlaps(ipaddress.IPv4Network("198.19.8.0/30")) for _, each in ranges)
    assert len(ranges) == 32 + 16 - 16 - 1


def test_the_build_includes_every_node_binary() -> None:
    needed = {"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr"}
    assert needed <= {binary.name for binary in binaries.BINARIES}
