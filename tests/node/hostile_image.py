"""The image of the hostile program: this Python and only the modules that the program loads."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from testbed.images import Content, Image, with_libraries

NAME = "localhost/orion-hostile:test"
FOLDER = Path("/hostile")
ROOT = Path(__file__).parents[2]
OURS = ("orion.", "tests.")
PROGRAM = "tests.node.hostile_program"
_LISTING = (
    f"import json, sys, encodings.idna, {PROGRAM}\n"
    "print(json.dumps({n: m.__file__ for n, m in sys.modules.items() if getattr(m, '__file__', None)}))"
)


def image() -> Image:
    """Return the image; its program is process 1, as root.

    Raises:
        FileNotFoundError: a library of this Python is not on this machine.
    """
    python = Path(sys.executable).resolve()
    listed = subprocess.run(
        [sys.executable, "-c", _LISTING],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    library = Path(sysconfig.get_path("stdlib"))
    loaded = {name: Path(file) for name, file in json.loads(listed.stdout).items()}
    modules = [file for file in loaded.values() if file.is_relative_to(library)]
    extensions = [each for each in modules if ".so" in each.suffixes or each.suffix == ".so"]
    files: dict[str, Content] = {str(each): each for each in modules}
    files |= with_libraries(python, *extensions)
    files |= {str(FOLDER / _place(name, file)): file for name, file in loaded.items() if name.startswith(OURS)}
    files["/tmp/.keep"] = b""
    return Image(
        NAME,
        files,
        entrypoint=(str(python), "-m", PROGRAM),
        environment={"PYTHONPATH": str(FOLDER), "PYTHONHOME": sys.base_prefix, "PYTHONDONTWRITEBYTECODE": "1"},
        folder=str(FOLDER),
    )


def _place(module: str, file: Path) -> str:
    """Return the path of a module of Orion below the folder from which the program imports."""
    return f"{module.replace('.', '/')}{'/__init__' if file.name == '__init__.py' else ''}.py"
