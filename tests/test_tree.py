"""Rules of the source tree that `make check` does not check."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.check_wheel import LIBRARIES, PROGRAMS
from tools.image import sources

ROOT = Path(__file__).resolve().parent.parent
OF_A_CHECKOUT = {"measurements", "testbed", "tests", "tools"}
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES = SETTINGS["scikit-build"]["wheel"]["packages"]
INSTALLED = set(PACKAGES.values())


def test_no_folder_hides_the_stdlib_operator() -> None:
    # With an __init__.py in operator/, `python -m anything` from the root would import that folder in place of the
    # standard library's `operator`. In tests/, pytest would give modules such names.
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


def test_every_package_is_in_the_wheel_or_needs_a_checkout() -> None:
    assert {f"orion/{name}": name for name in INSTALLED} == PACKAGES
    folders = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("[a-z]*/**/*.py")}
    assert folders - {"build", "charts", "dist", "examples"} == INSTALLED | OF_A_CHECKOUT


def test_the_image_is_made_of_every_package_in_the_wheel() -> None:
    rules = sources.Rules.read((ROOT / ".dockerignore").read_text())
    assert set(rules.passing) >= INSTALLED


def test_the_image_compiles_every_library_and_program_of_the_hook_that_the_wheel_installs() -> None:
    targets = re.search(r'SKBUILD_BUILD_TARGETS="(.*)"', (ROOT / "Dockerfile").read_text())
    assert targets is not None
    hooks = {Path(library).stem.removeprefix("lib") for library in LIBRARIES if "orion_hook" in library}
    programs = {Path(program).name.replace("-", "_") for program in PROGRAMS}
    assert hooks | programs <= set(targets[1].split(";"))


def test_every_package_has_a_layer() -> None:
    contract = next(each for each in SETTINGS["importlinter"]["contracts"] if each["type"] == "layers")
    layered = {name for layer in contract["layers"] for name in re.split(r" [|:] ", layer)}
    assert layered == set(SETTINGS["importlinter"]["root_packages"])
    known = {name.removeprefix("orion.").partition(".")[0] for name in layered}
    assert known == (INSTALLED | OF_A_CHECKOUT) - {"tests"}


def test_help_lists_every_target_that_people_call() -> None:
    done = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True)
    for target in ("demo", "test", "check", "bench-hook", "generate", "clean"):
        assert re.search(rf"(?m)^  {target}\s", done.stdout)
