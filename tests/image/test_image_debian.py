"""The base of Debian's packages: locked by version and hash, made of the packages of the lock, or marked as drifted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import Failed
from tools.image import bases, debian, making
from tools.image.archive import Archive
from tools.image.debian import Lock, Pin
from tools.image.programs import Programs

NOW = {"libone": "1.0", "libtwo": "2:2.0-1"}
LATER = {"libone": "1.1", "libtwo": "2:2.0-1"}
Made = Callable[..., str]


def _digest(version: str) -> str:
    return version.encode().hex().ljust(64, "0")


def _pins(versions: dict[str, str]) -> dict[str, Pin]:
    return {name: Pin(version, _digest(version)) for name, version in versions.items()}


def _lock(versions: dict[str, str]) -> Lock:
    return Lock("20260131T120000Z", {each: _pins(versions) for each in debian.ARCHITECTURES})


class Debian(Programs):
    """mmdebstrap with mirrors that have these versions."""

    def __init__(self, today: dict[str, str], past: dict[str, str] | None = None) -> None:
        self.today, self.past = today, past
        self.asked: list[list[str]] = []

    def hooks(self, name: str) -> Path:
        return Path("/hooks") / name

    def mmdebstrap(self, *arguments: str | Path) -> str:
        suite = arguments.index(debian.SUITE)
        archive, mirrors = Path(arguments[suite + 1]), [str(each) for each in arguments[suite + 2 :]]
        self.asked.append(mirrors)
        versions = self.past if mirrors else self.today
        if versions is None:
            raise Failed("mmdebstrap failed:\nE: no such host")
        archive.write_text("files")
        (archive.parent / "status").write_text(_paragraphs(versions))
        (archive.parent / "mirror_Packages").write_text(_paragraphs({**versions, "libthree": "3"}, hashes=True))
        return ""


def _paragraphs(versions: dict[str, str], hashes: bool = False) -> str:
    return "\n".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
        f"{f'SHA256: {_digest(version)}' if hashes else 'Conffiles:'}\n Description: of no more\n"
        for name, version in versions.items()
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache and lock for the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "LOCK", tmp_path / "debian.lock")
    monkeypatch.setattr(debian, "architecture", lambda: "amd64")
    debian.LOCK.write_text(str(_lock(NOW)))
    return tmp_path


def test_a_lock_can_be_read_as_it_was_written() -> None:
    assert Lock.read(str(_lock(NOW))) == _lock(NOW)


MOMENT = "moment 20260131T120000Z\n"
OF_ANOTHER = f"{MOMENT}mips libone 1.0 sha256:{_digest('1.0')}\n"


@pytest.mark.parametrize("text", ["", "# words\n", f"{MOMENT}amd64 libone 1.0\n", "moment today\n", OF_ANOTHER])
def test_an_invalid_lock_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"debian\.lock has"):
        Lock.read(text)


def test_the_lock_pins_both_architectures() -> None:
    lock = Lock.read(debian.LOCK.read_text())
    assert set(lock.pins["amd64"]) == set(lock.pins["arm64"])
    assert {"libc6", "libssl3", "python3.11-minimal", "libstdc++6"} <= set(lock.pins["amd64"])
    assert {pin.digest for pin in lock.pins["amd64"].values()} != {pin.digest for pin in lock.pins["arm64"].values()}


def test_differences_from_the_lock_are_named() -> None:
    found = debian.differences(
        {**_pins(NOW), "libgone": Pin("1", "a"), "libother": Pin("1", "a")},
        {**_pins(LATER), "libnew": Pin("1", "a"), "libother": Pin("1", "b")},
    )
    assert found == [
        "libgone is missing", "libnew 1 is not locked", "libone 1.1 instead of 1.0", "libother 1 with another hash",
    ]  # fmt: skip


def test_a_package_without_a_hash_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="libone"):
        debian.installed(_paragraphs(NOW), [])


def test_a_base_is_made_once_of_the_current_packages(cache: Path) -> None:
    mirrors = Debian(today=NOW)
    made = bases.get_or_make(mirrors, strict=True, say=print)
    assert made == bases.get_or_make(mirrors, strict=False, say=print) == bases.existing(strict=True)
    assert (made.drift, made.archive.read_text(), mirrors.asked) == ("", "files", [[]])


def test_packages_that_the_mirrors_lack_come_from_the_snapshot_archive(cache: Path) -> None:
    mirrors = Debian(today=LATER, past=NOW)
    assert bases.get_or_make(mirrors, strict=True, say=print).drift == ""
    assert mirrors.asked == [[], _lock(NOW).mirrors()]
    assert all("20260131T120000Z" in line for line in mirrors.asked[1])


@pytest.mark.parametrize("past", [None, LATER], ids=["unreachable", "of another hour"])
def test_a_base_that_cannot_match_its_lock_is_refused_with_advice(cache: Path, past: dict[str, str] | None) -> None:
    with pytest.raises(Failed, match=r"libone 1\.1 instead of 1\.0.*`make image-locks`.*--allow-drift"):
        bases.get_or_make(Debian(today=LATER, past=past), strict=True, say=print)
    assert bases.existing(strict=False) is None


def test_a_base_that_need_not_match_its_lock_names_the_differences(cache: Path) -> None:
    lines: list[str] = []
    made = bases.get_or_make(Debian(today=LATER), strict=False, say=lines.append)
    assert made.drift == "libone 1.1 instead of 1.0"
    assert "make image-locks" in lines[-1]
    assert bases.existing(strict=False) == made
    assert bases.existing(strict=True) is None
    assert bases.get_or_make(Debian(today=NOW), strict=True, say=print).archive != made.archive


def test_a_new_lock_needs_a_new_base(cache: Path) -> None:
    before = bases.get_or_make(Debian(today=NOW), strict=True, say=print)
    debian.LOCK.write_text(str(_lock(LATER)))
    assert bases.existing(strict=False) is None
    assert bases.get_or_make(Debian(today=LATER), strict=True, say=print).state != before.state


@pytest.mark.node
def test_the_images_packages_are_those_of_the_lock(image: Archive) -> None:
    drift = image.configuration["config"]["Labels"].get(making.DRIFT, "")
    [status] = image.contents(lambda path: path == "/var/lib/dpkg/status").values()
    inside = {each["Package"]: each["Version"] for each in debian.records(status.decode())}
    locked = Lock.read(debian.LOCK.read_text()).pins[debian.architecture()]
    differing = {name for name in inside.keys() | locked.keys()
                 if name not in locked or inside.get(name) != locked[name].version}  # fmt: skip
    assert {each.partition(" ")[0] for each in drift.split("; ")} - {""} == differing
    if drift:
        pytest.skip(f"Debian has newer packages than debian.lock, which `make image-locks` renews: {drift}")
