"""Makes the gRPC stubs of the node agent's interface, or checks that they are what the .proto says.

Run by `make generate` and, with --check, by `make check`. protoc writes imports after the path that it was given, so it
is given the path under which the package is imported (`orion/node_agent/api/`, by the links in build/import).
"""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = ROOT / "build" / "import"
PROTO = "orion/node_agent/api/agent.proto"
STUBS = ("agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py")


def generate(folder: Path) -> dict[str, str]:
    """Run protoc into ``folder`` and return the text of each stub by its file name."""
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{IMPORTS}", f"-I{well_known}"]
    arguments += [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main([*arguments, PROTO]) != 0:
        raise SystemExit(f"protoc could not read {PROTO}")
    return {name: (folder / PROTO).with_name(name).read_text() for name in STUBS}


def main() -> int:
    """Write the stubs, or with --check say which of them are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a stub is out of date")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    home = (IMPORTS / PROTO).parent
    stale = [name for name, text in fresh.items() if not (home / name).exists() or (home / name).read_text() != text]
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run `make generate`", file=sys.stderr)
        return 1
    for name in stale:
        (home / name).write_text(fresh[name])
    print(f"gRPC stubs: {'current' if not stale else 'made ' + ', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
