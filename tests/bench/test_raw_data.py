"""What every file of raw data begins with: the command that makes it again."""

import re
from importlib.util import find_spec
from pathlib import Path

from orion.bench import raw_data

ROOT = Path(__file__).parents[2]


def test_a_measurement_is_called_by_its_modules_name_and_made_by_a_module_that_is() -> None:
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
