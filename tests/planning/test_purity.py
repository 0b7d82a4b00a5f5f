"""What `planning` may do: read nothing, keep nothing, import nothing of Orion. Read from the sources."""

import ast
import sys
from pathlib import Path

import pytest

PLANNING = Path(__file__).parents[2] / "planning"
SOURCES = sorted(PLANNING.rglob("*.py"))
ALLOWED = {"numpy", "highspy"}
IMPURE = {
    "asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil", "socket",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
CALLS = {"open", "print", "input", "exec", "eval", "globals"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PLANNING)))
def test_planning_reads_nothing_and_keeps_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Global | ast.Nonlocal), f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in CALLS, f"line {node.lineno}"
        if isinstance(node, ast.Attribute):
            assert node.attr != "random", f"line {node.lineno}"
        for name in _imported(node):
            assert name not in IMPURE, f"{name} is imported"
            assert name in ALLOWED | sys.stdlib_module_names, f"{name} is imported"


def _imported(node: ast.AST) -> list[str]:
    """Return the packages that a statement imports from outside of `planning`."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.level:
            return []
        assert not (node.module or "").startswith("orion"), "planning imports its own modules by relative names"
        return [(node.module or "").partition(".")[0]]
    return []


def test_the_sources_were_found() -> None:
    assert {"placement.py", "optimal.py", "harvest.py"} <= {path.name for path in SOURCES}
