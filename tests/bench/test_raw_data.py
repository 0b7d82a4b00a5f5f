"""The header of raw data files names the command that makes the file again."""

import re
from importlib.util import find_spec
from pathlib import Path

from orion.bench import raw_data

ROOT = Path(__file__).parents[2]


def test_the_header_names_an_existing_module() -> None:
    named = {
        name
        for folder in ("bench", "measurements")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'raw_data\.header\("(.+?)"\)', path.read_text())
    }
    assert len(named) > 10
    for name in named:
        assert find_spec(name) is not None, name
        head = raw_data.header(name)
        assert head["experiment"] == name.rpartition(".")[2]
        assert head["command"].startswith(f"python -m {name}")
