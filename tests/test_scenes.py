"""One worker runs all tests of a scene, in order. Those of `tests/chart/on_cluster` need this: they share a release."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
EACH = "import os, pytest\n" + "".join(
    f"def test_{number}():\n    with open({{log!r}}, 'a') as log:\n"
    f"        print({{name!r}}, {number}, os.environ['PYTEST_XDIST_WORKER'], file=log)\n"
    for number in range(4)
)


def test_the_tests_of_a_scene_stay_together_and_in_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    scenes = {"test_a.py": "a", "test_b.py": "b", "on_cluster/test_c.py": "c", "on_cluster/test_d.py": "c"}
    for file, scene in scenes.items():
        path = tmp_path / "tests" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EACH.format(log=str(log), name=scene + file))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, f"--rootdir={tmp_path}", "-c", "/dev/null", str(tmp_path)], capture_output=True)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    seen, workers = defaultdict(list), defaultdict(set)
    for line in log.read_text().splitlines():
        name, number, worker = line.split()
        seen[name].append(int(number))
        workers[name[0]].add(worker)
    assert all(numbers == [0, 1, 2, 3] for numbers in seen.values())
    assert {scene: len(each) for scene, each in workers.items()} == {"a": 1, "b": 1, "c": 1}
