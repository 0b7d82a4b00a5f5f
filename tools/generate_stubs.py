"""Generates the gRPC stubs from each .proto (node agent, kubelet, operator), or checks that they match it.

Run by `make generate` and, with --check, by `make check`. protoc derives import statements from the path that it gets,
so it gets the path under which the package is imported (`orion/node_agent/api/`, through links in build/import).
"""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = ROOT / "build" / "import"
PROTOS = (
    "orion/node_agent/api/agent.proto",
    "orion/node_agent/kubelet/api.proto",
    "orion/device_plugin/kubelet/api.proto",
    "orion/dra_driver/kubelet/claims/api.proto",
    "orion/dra_driver/kubelet/health/v1/api.proto",
    "orion/dra_driver/kubelet/health/v1alpha1/api.proto",
    "orion/dra_driver/kubelet/registration/api.proto",
    "orion/node_pods/node_pods.proto",
)
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")
""" The last one only for a .proto with a service. """


def generate(folder: Path) -> dict[str, str]:
    """Run protoc with output in ``folder``; return the text of each stub by its path below the imports."""
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{IMPORTS}", f"-I{well_known}"]
    arguments += [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    made = {}
    for proto in PROTOS:
        if protoc.main([*arguments, proto]) != 0:
            raise SystemExit(f"protoc could not read {proto}")
        has_service = "\nservice " in (IMPORTS / proto).read_text()
        for suffix in SUFFIXES if has_service else SUFFIXES[:-1]:
            stub = proto.removesuffix(".proto") + suffix
            made[stub] = (folder / stub).read_text()
    return made


def main() -> int:
    """Write the stubs, or with --check report those that are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a stub is out of date")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    stale = [
        stub for stub, text in fresh.items() if not (IMPORTS / stub).exists() or (IMPORTS / stub).read_text() != text
    ]
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run `make generate`", file=sys.stderr)
        return 1
    for stub in stale:
        (IMPORTS / stub).write_text(fresh[stub])
    print(f"gRPC stubs: {'current' if not stale else 'made ' + ', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
