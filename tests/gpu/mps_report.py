"""Runs all tests of MPS on a GPU and prints what happens.

It continues after failures, because machines with a GPU and MPS are rare.

    PYTHONPATH=build/import:. python3 tests/gpu/mps_report.py [NAME...]

A NAME is a part of a test's name; -NAME excludes the tests whose names contain NAME. The exit status is the number of
failures.
"""

import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu import test_gpu_mps_deaths, test_gpu_mps_in_pods, test_gpu_mps_tenants
from tests.gpu.mps_node import SIMULATED, MpsNode, print_line

FACTS = (
    "nvidia-smi --query-gpu=name,uuid,driver_version,compute_mode --format=csv,noheader",
    "nvidia-cuda-mps-control -v",
    "uname -a",
    "id",
    "grep Cap /proc/self/status",
    "which setpriv unshare nvidia-cuda-mps-control nvidia-cuda-mps-server",
    "unshare --mount --pid --ipc --net --uts --fork --mount-proc ls /proc/self/exe /proc/driver/nvidia",
)


def facts() -> None:
    """Print the GPU, the versions of the driver and the kernel, and what this process may do."""
    for command in FACTS:
        try:
            done = subprocess.run(command.split(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            print_line(f"$ {command}: {error}")
            continue
        said = f"{done.stdout}{done.stderr}".strip().replace("\n", "\n        ")
        print_line(f"$ {command} -> {done.returncode}: {said}")


def cases() -> list[tuple[str, Callable[..., None], dict[str, Any]]]:
    """Return all tests: a name, the function, and its arguments other than `mps`."""
    found: list[tuple[str, Callable[..., None], dict[str, Any]]] = []
    for module in (test_gpu_mps_in_pods, test_gpu_mps_tenants, test_gpu_mps_deaths):
        for name, test in vars(module).items():
            if not name.startswith("test_"):
                continue
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            if not marks:
                found.append((name, test, {}))
            for mark in marks:
                found += [(f"{name}[{value}]", test, {mark.args[0]: value}) for value in mark.args[1]]
    return found


def run(name: str, test: Callable[..., None], given: dict[str, Any]) -> str:
    """Run one test; return OK, or how it failed."""
    print(f"=== {name}", flush=True)
    began = time.monotonic()
    try:
        if "mps" in test.__code__.co_varnames[: test.__code__.co_argcount]:
            with MpsNode() as node:
                test(mps=node, **given)
        else:
            test(**given)
        result = "OK"
    except Exception as error:  # the next test may still give a result
        words = " ".join(str(error).split())[:300]
        result = f"FAILED: {type(error).__name__}: {words}"
        traceback.print_exc(limit=-3, file=sys.stdout)
    print(f"--- {result} ({time.monotonic() - began:.1f} s)", flush=True)
    return result


def main(words: list[str]) -> int:
    """Run all tests, or the named ones; return the number of failures."""
    with_any = [word for word in words if not word.startswith("-")]
    without = [word[1:] for word in words if word.startswith("-")]
    if not SIMULATED and not with_any:
        facts()
    results = {
        name: run(name, test, given)
        for name, test, given in cases()
        if (not with_any or any(word in name for word in with_any)) and not any(word in name for word in without)
    }
    print("\n".join(f"{result[:120]:<122}{name}" for name, result in results.items()), flush=True)
    return sum(result != "OK" for result in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
