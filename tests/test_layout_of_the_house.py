"""What the house must keep whoever builds in it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("operator", "api_server", "device_plugin", "node_agent", "hook", "inprocess", "crds", "cli", "bench")


def test_no_folder_hides_the_stdlib_operator() -> None:
    # With an __init__.py, `python -m anything` from the root would import this folder where it wants the standard
    # library's `operator`; in tests/ pytest would give modules such names.
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_stdlib_operator_is_the_one_found_from_the_root() -> None:
    code = "import operator, collections; print(operator.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith(str(ROOT))


def test_file_names_of_tests_are_unique() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/running.md"])
def test_commands_that_the_docs_name_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = (ROOT / page).read_text()
    for target in set(re.findall(r"(?m)(?:^    |`)make ([a-z-]+)", text)):
        assert re.search(rf"(?m)^{target}:", makefile), f"{page} names `make {target}`"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/running.md", "docs/limits.md"])
def test_links_of_the_docs_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        if not link.startswith("http"):
            assert (ROOT / page).parent.joinpath(link).exists(), f"{page} links to {link}"


@pytest.mark.parametrize("tool", ["generate_map.py", "check_version.py"])
def test_what_is_derived_is_current(tool: str) -> None:
    arguments = ["--check"] if tool.startswith("generate") else []
    done = subprocess.run([sys.executable, ROOT / "tools" / tool, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_room_is_in_the_table_of_packages() -> None:
    import tomllib

    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"]
    assert table == {f"orion/{room}": room for room in ROOMS}


@pytest.mark.parametrize("room", ["operator", "device_plugin", "crds", "charts"])
def test_a_room_without_code_says_what_it_will_know(room: str) -> None:
    assert "must" in (ROOT / room / "README.md").read_text()


def test_help_lists_every_target_that_people_call() -> None:
    done = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True)
    for target in ("demo", "test", "check", "bench-hook", "generate", "clean"):
        assert re.search(rf"(?m)^  {target}\s", done.stdout)
