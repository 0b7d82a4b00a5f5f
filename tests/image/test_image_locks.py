"""The image's downloads are pinned with hashes, and match the requirements in pyproject.toml."""

import re
from pathlib import Path

import pytest

from testbed.errors import Failed
from tools.image import __main__ as command
from tools.image import bases, debian, locks, registry
from tools.image.__main__ import DOCKERFILE
from tools.image.programs import Programs

GOOD = """\
# Made by a tool.
aiohttp==3.14.5 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
yarl==1.25.1 ; python_version >= '3.8' \\
    --hash=sha256:{a}
""".format(a="a" * 64, b="b" * 64)


@pytest.mark.parametrize("lock", [locks.RUNTIME, locks.BUILD], ids=lambda path: path.name)
def test_the_locks_match_the_requirements(lock: Path) -> None:
    assert locks.complaints(locks.wanted()[lock], lock.read_text()) == []


@pytest.mark.parametrize("lock", [locks.RUNTIME, locks.BUILD], ids=lambda path: path.name)
def test_the_locks_name_no_index_to_download_from(lock: Path) -> None:
    assert re.findall(r"(?m)://|^--", lock.read_text()) == []


def test_a_lock_is_read() -> None:
    pins = locks.pins(GOOD)
    assert {name: (pin.version, len(pin.hashes)) for name, pin in pins.items()} == {
        "aiohttp": ("3.14.5", 2), "yarl": ("1.25.1", 1),
    }  # fmt: skip
    assert locks.complaints(["aiohttp>=3,<4", "yarl"], GOOD) == []


@pytest.mark.parametrize(
    ("wanted", "text", "sentence"),
    [
        ("aiohttp>=4", GOOD, "aiohttp 3.14.5 is not what pyproject.toml requires (>=4)"),
        ("kopf", GOOD, "kopf is missing"),
        ("aiohttp", GOOD.replace("aiohttp==3.14.5", "aiohttp>=3.14.5"), "aiohttp is not pinned to one version"),
        ("yarl", GOOD[: GOOD.index("yarl")] + "yarl==1.25.1\n", "yarl has no hash"),
        ("yarl", GOOD.replace("sha256:", "md5:"), "yarl has a weak hash"),
    ],
)
def test_faults_of_a_lock_are_reported(wanted: str, text: str, sentence: str) -> None:
    assert sentence in locks.complaints([wanted], text)


def test_the_dockerfile_installs_nothing_without_hashes() -> None:
    dockerfile = (locks.ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [line for line in dockerfile.splitlines() if line.startswith("RUN") and " install " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert not re.search(r"\b(curl|wget|apt-get|ADD)\b", dockerfile)


def test_the_dockerfile_has_one_base_pinned_by_digest() -> None:
    text = DOCKERFILE.read_text()
    bases = dict(re.findall(r"(?m)^ARG (BUILDER|RUNTIME)=\S+:[\w.-]+@(sha256:[0-9a-f]{64})$", text))
    assert bases["BUILDER"] == bases["RUNTIME"]
    assert re.findall(r"(?m)^FROM (\S+)", text) == ["${BUILDER}", "${BUILDER}", "${RUNTIME}"]
    assert registry.renew(text, lambda repository, tag: bases["RUNTIME"]) == text


def test_a_dockerfile_gets_the_current_digests() -> None:
    asked: list[tuple[str, str]] = []

    def ask(*of: str) -> str:
        asked.append((of[0], of[1]))
        return f"sha256:{'b' * 64}"

    before = "".join(f"ARG {name}=python:3.12-slim@sha256:{'a' * 64}\n" for name in ("BUILDER", "RUNTIME"))
    assert registry.renew(before, ask) == before.replace("a" * 64, "b" * 64)
    assert asked == [("python", "3.12-slim")]
    with pytest.raises(ValueError, match="by tag and digest"):
        registry.renew("ARG BUILDER=python:3.12-slim\n", ask)


def test_a_pin_that_cannot_be_renewed_is_unchanged_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dockerfile, lock = tmp_path / "Dockerfile", tmp_path / "debian.lock"
    dockerfile.write_bytes(DOCKERFILE.read_bytes())

    def unreachable(repository: str, tag: str) -> str:
        raise Failed(f"no answer for {repository}")

    monkeypatch.setattr(command, "DOCKERFILE", dockerfile)
    monkeypatch.setattr(debian, "LOCK", lock)
    monkeypatch.setattr(locks, "make", lambda: None)
    monkeypatch.setattr(Programs, "bring", lambda say: None)
    monkeypatch.setattr(bases, "lock", lambda programs, say: "renewed\n")
    monkeypatch.setattr(registry, "digest", unreachable)
    monkeypatch.setattr("sys.argv", ["tools.image", "lock"])
    assert command.main() == 1
    assert (dockerfile.read_bytes(), lock.read_text()) == (DOCKERFILE.read_bytes(), "renewed\n")
    assert capsys.readouterr().out == "Dockerfile is unchanged: no answer for python\n"
