"""Measures what the hook adds to a best-effort program's CUDA graphs: making, updating and launching them.

    python measurements/overhead/graph_cost.py > graph_cost.jsonl      on a machine with an NVIDIA GPU, gcc and `orion`

Each turn runs `graph_cost.c` without the hook, as the only client (`be`), and beside an hp client that is idle
(`be beside idle hp`), in this order. Each line of output is one figure of the program, with its turn and its case.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_S = 60
CUDA = Path("/usr/local/cuda")


def compiled(folder: Path, include: Path, library: Path) -> Path:
    """Return the compiled program."""
    program = folder / "graph_cost"
    options = ["-O2", "-g", "-Wall", "-Wextra", f"-I{include}", f"-L{library}"]
    libraries = ["-lcuda", "-lm", "-lpthread", "-ldl"]
    subprocess.run(["gcc", *options, str(HERE / "graph_cost.c"), "-o", str(program), *libraries], check=True)
    return program


@contextmanager
def idle_hp(command: list[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run an hp client that launches nothing after its start."""
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise SystemExit("graph_cost: the idle hp client did not start; its message is above")
        try:
            yield
        finally:
            client.stdin.close()


def figures(command: list[str], turn: int, case: str) -> None:
    """Run one case and print its figures."""
    print(f"turn {turn}: {case}", file=sys.stderr)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    for line in run.stdout.splitlines():
        print(json.dumps({"turn": turn, "case": case, **json.loads(line)}), flush=True)


def main() -> None:
    """Parse the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--simulated", action="store_true", help="use the simulated GPU; its times mean little")
    parser.add_argument("--include", type=Path, default=CUDA / "include", help="the folder of cuda.h")
    parser.add_argument("--library", type=Path, default=CUDA / "lib64" / "stubs", help="the folder of libcuda.so")
    arguments = parser.parse_args()
    client = ["orion", "run", *(["--simulated"] if arguments.simulated else []), "--priority"]
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder), arguments.include, arguments.library)
        for turn in range(1, arguments.turns + 1):
            be = [*client, "be", "--", str(program), "measure"]
            if not arguments.simulated:
                figures([str(program), "measure"], turn, "unhooked")
            figures(be, turn, "be")
            with idle_hp([*client, "hp", "--", str(program), "idle"]):
                figures(be, turn, "be beside idle hp")


if __name__ == "__main__":
    main()
