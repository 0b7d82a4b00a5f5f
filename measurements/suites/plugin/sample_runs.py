"""The tests of NVIDIA's CUDA samples: each run of a program is one test. measurements.suites.samples writes the list.

A program's exit status is its outcome: 0 passed, 2 waived (the GPU or the machine lacks something).
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

WAIVED = 2
MESSAGE_LENGTH = 200


def cases_of(file: str) -> Any:
    """Return the test of the chapter whose test file is `file`, with one case for each run."""
    chapter = Path(file)
    runs = json.loads(chapter.with_name(f"{chapter.stem.removeprefix('test_')}.json").read_text())
    names = [" ".join([Path(run["program"]).name, *run["arguments"]]) for run in runs]

    @pytest.mark.parametrize("run", runs, ids=names)
    def test_sample(run: dict[str, Any], tmp_path: Path) -> None:
        program = chapter.parent / run["program"]
        # In a folder of its own, because programs write beside their data, and three roles may run at once.
        folder = tmp_path / "run"
        shutil.copytree(program.parent, folder, ignore=shutil.ignore_patterns("CMakeFiles", "*.ninja"))
        done = subprocess.run([f"./{program.name}", *run["arguments"]], cwd=folder, capture_output=True, check=False)
        if done.returncode == WAIVED:
            pytest.skip("the sample waived itself")
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == 0, f"exit status {done.returncode}: {' '.join(said.split())[-MESSAGE_LENGTH:]}"

    return test_sample
