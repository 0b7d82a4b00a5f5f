"""The image of the hostile program: this Python, with the modules that the program loads and nothing else."""

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
PROGRAM = "tests.node.hostile_program"
OURS = {
    "orion/hook/layout.py": ROOT / "hook/layout.py",
    "orion/hook/join.py": ROOT / "hook/join.py",
    "orion/hook/__init__.py": ROOT / "hook/__init__.py",
    **{
        path: ROOT / path
        for path in (
            "tests/hook/hostile_client.py",
            "tests/hook/hostile_root.py",
            "tests/node/hostile_program.py",
            "tests/node_agent/protocol_client.py",
        )
    },
}
_LISTING = (
    f"import json, sys, encodings.idna, {PROGRAM}\n"
    "print(json.dumps([m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)]))"
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
    modules = [Path(each) for each in json.loads(listed.stdout) if Path(each).is_relative_to(library)]
    extensions = [each for each in modules if ".so" in each.suffixes or each.suffix == ".so"]
    files: dict[str, Content] = {str(each): each for each in modules}
    files |= with_libraries(python, *extensions)
    files |= {str(FOLDER / path): source for path, source in OURS.items()}
    files["/tmp/.keep"] = b""
    return Image(
        NAME,
        files,
        entrypoint=(str(python), "-m", PROGRAM),
        environment={"PYTHONPATH": str(FOLDER), "PYTHONHOME": sys.base_prefix, "PYTHONDONTWRITEBYTECODE": "1"},
        folder=str(FOLDER),
    )
