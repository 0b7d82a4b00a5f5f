"""Orion's image for the nodes of a cluster, built by the command that people call.

`tools.image` stands on this package: it takes the distribution's packages, the cache and its locks from here. So this
package runs it as a program, and imports nothing of it.
"""

import subprocess
import sys
from pathlib import Path

from testbed.binaries import Say
from testbed.waiting import Failed

ROOT = Path(__file__).resolve().parents[1]


def build(say: Say, name: str, edition: str = "dev") -> Path:
    """Return the archive of Orion's image, built if its sources changed.

    Args:
        say: gets each line of progress.
        name: that the image has, in full and with a tag.
        edition: `dev` is this checkout; `newer` is an Orion of a later version.

    Raises:
        Failed: the image could not be built; the text holds the builder's last line.
    """
    command = [sys.executable, "-m", "tools.image", "build", "--allow-drift", "--name", name, "--edition", edition]
    said = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert builder.stderr is not None
        for line in builder.stderr:
            said = line.rstrip()
            say(said)
        archive = builder.stdout.read().strip()
    if builder.returncode != 0:
        raise Failed(f"Orion's image could not be built: {said or 'the builder gave no reason'}")
    return Path(archive)
