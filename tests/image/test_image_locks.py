"""What the image downloads is pinned with hashes, and is what pyproject.toml asks for."""

import re
from pathlib import Path

import pytest

from tools.image import locks

GOOD = """\
# Made by a tool.
aiohttp==3.14.5 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
yarl==1.25.1 ; python_version >= '3.8' \\
    --hash=sha256:{a}
""".format(a="a" * 64, b="b" * 64)


@pytest.mark.parametrize("lock", [locks.RUNTIME, locks.BUILD], ids=lambda path: path.name)
def test_the_locks_fit(lock: Path) -> None:
    assert locks.complaints(locks.wanted()[lock], lock.read_text()) == []


@pytest.mark.parametrize("lock", [locks.RUNTIME, locks.BUILD], ids=lambda path: path.name)
def test_the_locks_name_no_place_to_download_from(lock: Path) -> None:
    assert re.findall(r"(?m)://|^--", lock.read_text()) == []


def test_a_lock_is_read() -> None:
    pins = locks.pins(GOOD)
    assert {name: (pin.version, len(pin.hashes)) for name, pin in pins.items()} == {
        "aiohttp": ("3.14.5", 2), "yarl": ("1.25.1", 1),
    }  # fmt: skip
    assert locks.complaints(["aiohttp>=3,<4", "yarl"], GOOD) == []


@pytest.mark.parametrize(
    ("wanted", "text", "said"),
    [
        ("aiohttp>=4", GOOD, "aiohttp 3.14.5 is not what pyproject.toml asks for (>=4)"),
        ("kopf", GOOD, "kopf is missing"),
        ("aiohttp", GOOD.replace("aiohttp==3.14.5", "aiohttp>=3.14.5"), "aiohttp is not pinned to one version"),
        ("yarl", GOOD[: GOOD.index("yarl")] + "yarl==1.25.1\n", "yarl has no hash"),
        ("yarl", GOOD.replace("sha256:", "md5:"), "yarl has a weak hash"),
    ],
)
def test_what_is_wrong_with_a_lock_is_said(wanted: str, text: str, said: str) -> None:
    assert said in locks.complaints([wanted], text)


def test_the_dockerfile_installs_nothing_without_hashes() -> None:
    dockerfile = (locks.ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [line for line in dockerfile.splitlines() if line.startswith("RUN") and " install " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert not re.search(r"\b(curl|wget|apt-get|ADD)\b", dockerfile)
