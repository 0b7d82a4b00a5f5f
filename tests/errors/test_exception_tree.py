"""Every exception of the packages is in the one tree, and the drawing of the tree is right."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import grpc
import pytest

import orion.errors
from orion.errors import OrionError

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"].values()
OF_A_CHECKOUT = ("measurements", "testbed", "tools")
SIGNALS = {"Stopped"}
PLANNING = {"Unsolved"}  # planning imports no package of ours
TESTBED = {"Missing", "Failed"}
KINDS = [value for value in vars(orion.errors).values() if isinstance(value, type) and issubclass(value, OrionError)]
FOREIGN = re.compile(r"(Error|Exception|Exit|Interrupt)$")


def _classes(folder: str) -> list[tuple[str, list[str]]]:
    """Return the name and the bases of every class below a folder."""
    nodes = [node for path in (ROOT / folder).rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    return [
        (node.name, [ast.unparse(base).rpartition(".")[2] for base in node.bases])
        for node in nodes
        if isinstance(node, ast.ClassDef)
    ]


def _exceptions(*folders: str) -> list[tuple[str, list[str]]]:
    """Return the classes that are exceptions, by the name of a base or of a base's base."""
    classes = [each for folder in folders for each in _classes(folder)]
    known, found = {base for _, bases in classes for base in bases if FOREIGN.search(base)}, 0
    while found < len(known):
        found = len(known)
        known |= {name for name, bases in classes if known & set(bases)}
    return [(name, bases) for name, bases in classes if known & set(bases)]


def _drawn() -> dict[str, tuple[str, int, str]]:
    """Return the tree of the docstring: parent, exit status and gRPC's code by name."""
    tree: dict[str, tuple[str, int, str]] = {}
    above: list[str] = []
    for line in (orion.errors.__doc__ or "").splitlines():
        if match := re.match(r"^([│├└─ ]*)(\w+) +(\d) +([A-Z_]+) ", line):
            depth = len(match[1]) // 3
            tree[match[2]] = above[depth - 1] if depth else "Exception", int(match[3]), match[4]
            above[depth:] = [match[2]]
    return tree


def test_the_tree_in_the_docstring_is_right() -> None:
    assert _drawn() == {kind.__name__: (kind.__mro__[1].__name__, kind.exit_status, kind.grpc_code) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_status_that_grpc_knows(kind: type[OrionError]) -> None:
    assert grpc.StatusCode[kind.grpc_code] is not grpc.StatusCode.OK
    assert kind.exit_status > 0


def test_every_exception_of_a_package_derives_from_a_kind() -> None:
    beneath = {kind.__name__ for kind in KINDS}
    outside = [
        name
        for name, bases in _exceptions(*INSTALLED, "measurements")
        if name not in SIGNALS | PLANNING | beneath and not beneath & set(bases)
    ]
    assert outside == []


def test_the_testbed_and_the_tools_have_exactly_two_exceptions() -> None:
    assert {name for name, _ in _exceptions("testbed", "tools")} == TESTBED


def test_no_two_exceptions_share_a_name() -> None:
    counts = Counter(name for name, _ in _exceptions(*INSTALLED, *OF_A_CHECKOUT))
    assert [name for name, count in counts.items() if count > 1] == []
