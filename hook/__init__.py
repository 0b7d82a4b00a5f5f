"""Where the compiled hook, the profiler and the simulated driver lie, for the Python side.

An installed package carries them; in a checkout without an install they are looked for where
`cmake -S hook -B build/hook` leaves them. Nothing else of the hook runs in Python: it must work in processes that
have never heard of Python.
"""

from importlib.resources import as_file, files
from pathlib import Path

HOOK = "liborion_hook.so"
PROFILER = "liborion_profiler.so"
SIMULATED_DRIVER = "sim/libcuda.so.1"

CONTAINER_ROOT = "/run/orion"
""" What $ORION_ROOT is in a container: its slots and the hook are mounted below it. """

CONTAINER_LIBRARY = f"{CONTAINER_ROOT}/lib/{HOOK}"
""" The hook in a container: where the device plugin mounts it, and what the webhook has `LD_PRELOAD` name. """

_CHECKOUT_BUILD = Path(__file__).resolve().parent.parent / "build" / "hook"


def _find(name: str) -> Path:
    with as_file(files(__name__).joinpath(*name.split("/"))) as installed:
        for path in (installed, _CHECKOUT_BUILD / name):
            if path.is_file():
                return path.resolve()
    raise FileNotFoundError(f"{name} is not built; `pip install .` or `make build` builds it")


def library() -> Path:
    """Return the path of the hook, the shared object that ``LD_PRELOAD`` names.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(HOOK)


def profiler() -> Path:
    """Return the path of the profiler, the shared object that ``CUDA_INJECTION64_PATH`` names.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(PROFILER)


def simulated_driver() -> Path:
    """Return the path of the simulated GPU's ``libcuda.so.1``; its folder goes into ``LD_LIBRARY_PATH``.

    Raises:
        FileNotFoundError: the package was not built.
    """
    return _find(SIMULATED_DRIVER)
