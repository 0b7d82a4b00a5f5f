"""Paths of the compiled hook, the profiler and the simulated driver, for the Python side.

An installed package contains these files. A checkout without an install uses those that `cmake -S hook -B build/hook`
built. Nothing else of the hook runs in Python, because the hook also works in processes without Python.
"""

from importlib.resources import as_file, files
from pathlib import Path

HOOK = "liborion_hook.so"
BENCH_HOOK = "liborion_hook_bench.so"
PROFILER = "liborion_profiler.so"
AWAIT_AGENT = "orion-await-agent"
SIMULATED_DRIVER = "sim/libcuda.so.1"

CONTAINER_ROOT = "/run/orion"
""" The value of $ORION_ROOT in a container: its slots and the hook are mounted below this folder. """

CONTAINER_LIBRARY = f"{CONTAINER_ROOT}/lib/{HOOK}"
""" The hook in a container: the device plugin mounts it here, and the webhook puts this path into `LD_PRELOAD`. """

KNOWN_LIMIT = "memory-limit"
""" The file in a slot's directory with the slot's limit of memory, in bytes (`hook/src/agent/known_limit.h`). """

_CHECKOUT_BUILD = Path(__file__).resolve().parent.parent / "build" / "hook"


def _find(name: str) -> Path:
    with as_file(files(__name__).joinpath(*name.split("/"))) as installed:
        for path in (installed, _CHECKOUT_BUILD / name):
            if path.is_file():
                return path.resolve()
    raise FileNotFoundError(f"{name} is not built; run `pip install .` or `make build`")


def role_environment(role: str) -> dict[str, str]:
    """Return the variables that the hook needs in a process of a role, hp or be.

    A be process has as many connections to the GPU as CUDA allows (`hook/src/be/connections.h`).
    """
    return {"ORION_CONNECTIONS": "32"} if role == "be" else {}


def library(baselines: bool = False) -> Path:
    """Return the path of the hook, the shared object that ``LD_PRELOAD`` names.

    Args:
        baselines: return the build for `orion bench`, which has the policies of `policy_table.BENCH` and joins only
        agents that `orion bench` starts.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(BENCH_HOOK if baselines else HOOK)


def profiler() -> Path:
    """Return the path of the profiler, the shared object that ``CUDA_INJECTION64_PATH`` names.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(PROFILER)


def await_agent() -> Path:
    """Return the path of the program that waits until the node's agent answers; it needs no library.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(AWAIT_AGENT)


def simulated_driver() -> Path:
    """Return the path of the simulated GPU's ``libcuda.so.1``; its folder goes into ``LD_LIBRARY_PATH``.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(SIMULATED_DRIVER)
