"""Builds Orion's image for the nodes of a cluster, with the command that people use.

`tools.image` imports this package: the distribution's packages, the cache and the locks. So this package runs
`tools.image` as a program, and does not import it.
"""

import subprocess
import sys
from pathlib import Path

from testbed.binaries import Say
from testbed.errors import Failed

ROOT = Path(__file__).resolve().parents[1]


def build(say: Say, name: str, edition: str = "dev") -> Path:
    """Return the archive of Orion's image; build the image if its sources changed.

    Args:
        say: called with each line of progress.
        name: of the image, in full and with a tag.
        edition: `dev` is this checkout; `newer` is an Orion of a later version.

    Raises:
        Failed: the build failed; the text contains the builder's last line.
    """
    command = [sys.executable, "-m", "tools.image", "build", "--allow-drift", "--name", name, "--edition", edition]
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert builder.stderr is not None
        for line in builder.stderr:
            last = line.rstrip()
            say(last)
        archive = builder.stdout.read().strip()
    if builder.returncode != 0:
        raise Failed(f"Orion's image could not be built: {last or 'the builder gave no reason'}")
    return Path(archive)
