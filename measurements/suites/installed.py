"""Makes a suite of the tests inside an installed package: `python -m measurements.suites.installed PACKAGE FOLDER`.

An example of a package is numba.cuda.tests. Some packages redirect their imports, so pytest cannot find their tests by
the files' paths. FOLDER gets one test file for each test module, which imports that module's tests. It is what
`--sources` of the suite must be. A conftest.py that the tests need belongs there, too.
"""

import importlib
import pkgutil
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the command; exit status 0: files were written, 2: wrong options or no tests."""
    if len(arguments) != 2 or "--help" in arguments:
        print(__doc__)
        return 2
    package, folder = arguments[0], Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    found = modules(package)
    for module in found:
        name = module.removeprefix(f"{package}.").replace(".", "_")
        (folder / f"test_{name.replace('test_', '', 1)}.py").write_text(f"from {module} import *\n")
    print(f"{folder}: {len(found)} test files of {package}")
    return 0 if found else 2


def modules(package: str) -> list[str]:
    """Return the names of the test modules of a package and of the packages below it."""
    root = importlib.import_module(package)
    found = [each.name for each in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda _: None)]
    return [name for name in found if name.rpartition(".")[2].startswith("test_")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
