"""The contents of the image."""

import io
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.image.containers import Container
from tools.check_wheel import MAY_NEED, OLDEST_GLIBC, needed
from tools.image import inventory, locks
from tools.image.archive import Archive

pytestmark = pytest.mark.node

MEGABYTE = 1_000_000
ROOT = Path(__file__).parents[2]
SITE = re.compile(r"/opt/orion/lib/python3\.\d+/site-packages/")
# SPDX names of the licences that parts of the image may have. Each permits redistribution beside Apache-2.0, on the
# only condition that the image contains its text.
PERMITTED = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unlicense"}
# Distributions whose licence text is the first comment of their only file.
TEXT_ELSEWHERE = {"nvidia-ml-py"}


@pytest.fixture(scope="module")
def headers(image: Archive) -> dict[str, Any]:
    return {path: header for layer in image.layers() for path, header in layer.files.items()}


@pytest.fixture(scope="module")
def software(image: Archive) -> list[inventory.Software]:
    """The software in the image. Its lists, which redistributors need, are written to build/image."""
    return inventory.write(image, ROOT / "build" / "image")


def test_the_image_is_small(image: Archive) -> None:
    assert image.size < 100 * MEGABYTE


def test_orion_has_a_small_layer_of_its_own(image: Archive) -> None:
    last = image.layers()[-1]
    assert last.size < 8 * MEGABYTE
    inside = [path for path, header in last.files.items() if not header.isdir()]
    assert all(re.match(r"/opt/orion/(bin/orion$|lib/python3\.\d+/site-packages/orion)", path) for path in inside)


def test_no_program_is_setuid_or_setgid(headers: dict[str, Any]) -> None:
    wrong = [
        path for path, header in headers.items() if header.isfile() and header.mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    assert wrong == []


def test_only_root_can_change_the_files(container: Container) -> None:
    writable = []
    for folder, folders, files in os.walk(container.root):
        for path in (Path(folder) / name for name in (*folders, *files)):
            reported = path.lstat()
            sticky = stat.S_ISDIR(reported.st_mode) and reported.st_mode & stat.S_ISVTX  # /tmp
            if reported.st_mode & stat.S_IWOTH and not stat.S_ISLNK(reported.st_mode) and not sticky:
                writable.append(str(path))
            if reported.st_uid == 65532:
                writable.append(str(path))
    assert writable == []


PROGRAMS_OF_BUILDS = (
    "cc",
    "gcc",
    "clang",
    "zig",
    "ld",
    "make",
    "cmake",
    "pip",
    "pip3",
    "apt",
    "apt-get",
    "curl",
    "wget",
)


@pytest.mark.parametrize("program", PROGRAMS_OF_BUILDS)
def test_there_is_no_compiler_and_nothing_that_downloads(container: Container, program: str) -> None:
    folders = ("usr/bin", "usr/sbin", "usr/local/bin", "opt/orion/bin")
    assert [folder for folder in folders if (container.root / folder / program).exists()] == []


def test_orions_programs_are_orion_and_python(container: Container) -> None:
    names = {path.name for path in (container.root / "opt/orion/bin").iterdir()}
    assert names - {"python", "python3", "python3.11"} == {"orion"}


def test_there_are_no_packages_for_benchmarks_builds_or_machine_learning(software: list[inventory.Software]) -> None:
    names = {each.name.lower() for each in software if each.kind == "pypi"}
    assert names.isdisjoint(
        {"torch", "numpy", "matplotlib", "cuda-bindings", "pip", "setuptools", "kubernetes", "pytest"}
    )


def test_the_python_distributions_are_those_of_the_lock_and_orion(software: list[inventory.Software]) -> None:
    def called(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pinned = {name: pin.version for name, pin in locks.pins(locks.RUNTIME.read_text()).items() if pin.applies}
    inside = {called(each.name): each.version for each in software if each.kind == "pypi"}
    assert inside.pop("orion-gpu")
    assert inside == pinned


def test_every_licence_is_known_and_permitted(software: list[inventory.Software]) -> None:
    for each in software:
        if each.kind == "pypi":
            terms = set(re.split(r" AND | OR |[()]", each.licences[0])) - {""}
            assert terms, f"{each.name} declares no licence"
            assert terms <= PERMITTED, f"{each.name} is under {each.licences[0]}"
            assert each.texts or each.name in TEXT_ELSEWHERE, f"the text of {each.name}'s licence is not in the image"
        else:
            assert each.texts, f"{each.name} has no copyright file"
            assert each.licences, f"{each.name} declares no licences"


def test_debian_packages_are_from_the_main_archive(container: Container) -> None:
    status = (container.root / "var/lib/dpkg/status").read_text()
    sections = re.findall(r"(?m)^Section: (.*)$", status)
    assert sections
    assert [section for section in sections if section.startswith(("non-free", "contrib"))] == []


def test_the_bill_of_materials_has_each_software_once(image: Archive, software: list[inventory.Software]) -> None:
    bill = json.loads((ROOT / "build/image/sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["bom-ref"] == image.digest
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(references) == len(set(references)) == len(software)
    assert all(each["licenses"] and each["purl"].startswith("pkg:") for each in bill["components"])
    assert bill == json.loads(json.dumps(inventory.bill(image, software)))


@pytest.mark.parametrize("library", ["liborion_hook.so", "liborion_profiler.so", "sim/libcuda.so.1"])
def test_libraries_are_the_release_build(image: Archive, library: str) -> None:
    found = image.contents(lambda path: bool(SITE.match(path)) and path.endswith(f"orion/hook/{library}"))
    [content] = found.values()
    elf = ELFFile(io.BytesIO(content))
    libraries, versions = needed(elf)
    assert libraries <= MAY_NEED
    numbers = [version.removeprefix("GLIBC_") for version in versions]
    assert all(tuple(map(int, number.split("."))) <= OLDEST_GLIBC for number in numbers)
    assert elf.get_section_by_name(".debug_info") is None


def test_the_labels_describe_the_image(image: Archive) -> None:
    labels = image.configuration["config"]["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}title"] == "Orion"
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert labels[f"{prefix}version"] == re.findall(r'(?m)^version = "(.*)"', (ROOT / "pyproject.toml").read_text())[0]
    assert labels[f"{prefix}revision"].startswith("sources-")


def test_the_image_starts_orion_as_an_unprivileged_user(image: Archive) -> None:
    settings = image.configuration["config"]
    assert settings["User"] == "65532:65532"
    assert settings["Entrypoint"] == ["orion"]
    assert settings["Cmd"] == ["--help"]


def test_the_image_contains_nothing_of_the_build_machine(image: Archive, headers: dict[str, Any]) -> None:
    assert not {"/etc/pip.conf", "/run/certificates.pem", "/root/.cache", "/etc/resolv.conf"} & {
        path for path, header in headers.items() if header.size
    }
    configuration = json.dumps(image.configuration)
    assert "/root/" not in configuration
    assert "://" not in configuration
    assert {header.mtime for header in headers.values()} == {0}
    assert image.configuration["created"].startswith("1970-01-01")
