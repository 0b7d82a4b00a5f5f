"""Measures what two ways to preload the hook cost at process start: `... measurements.cluster.device_plugin_preload`.

LD_PRELOAD names the library in the environment; /etc/ld.so.preload names it in a file that the loader reads first. The
script starts the same program with neither way, with each way, and with both ways, in random order. It measures the
time from the program's start to its end. It runs as root in its own mount namespace, where it writes
/etc/ld.so.preload; the machine's file does not change.
"""

import argparse
import ctypes
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from orion import hook
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted

WAYS = ("neither", "environment", "file", "both")
PRELOAD = Path("/etc/ld.so.preload")
_CLONE_NEWNS, _PRIVATE_RECURSIVE = 0x20000, (1 << 18) | 16384


def own_etc() -> None:
    """Give this process a private, writable /etc.

    Raises:
        OSError: the process is not root, or the kernel has no overlay file system.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int, what: str) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    must(libc.unshare(_CLONE_NEWNS), "a mount namespace")
    must(libc.mount(b"none", b"/", None, _PRIVATE_RECURSIVE, None), "private mounts")
    above = tempfile.mkdtemp(prefix="orion-", dir="/tmp").encode()
    must(libc.mount(b"tmpfs", above, b"tmpfs", 0, None), "a tmpfs")
    for name in (b"upper", b"work"):
        os.mkdir(above + b"/" + name)
    layers = b"lowerdir=/etc,upperdir=" + above + b"/upper,workdir=" + above + b"/work"
    must(libc.mount(b"overlay", b"/etc", b"overlay", 0, layers), "an overlay on /etc")


def life(program: list[str], way: str, library: Path) -> tuple[float, float]:
    """Return the seconds from a process's start to its end, and its CPU seconds."""
    environment = {"PATH": os.environ["PATH"]}
    if way in ("environment", "both"):
        environment["LD_PRELOAD"] = str(library)
    began = time.perf_counter()
    process = os.posix_spawn(program[0], program, environment)
    _, status, used = os.wait4(process, 0)
    taken = time.perf_counter() - began
    assert status == 0
    return taken, used.ru_utime + used.ru_stime


def measure(program: list[str], starts: int, seed: int) -> dict[str, Any]:
    """Return the raw data: wall and CPU seconds by way, from rounds of all ways in random order."""
    raw = raw_data.header("measurements.cluster.device_plugin_preload") | {"program": program, "seed": seed}
    raw |= {"processors": os.cpu_count(), "kernel": platform.release(), "libc": platform.libc_ver()}
    raw["load_before"] = os.getloadavg()[0]
    library, chance = hook.library(), random.Random(seed)
    lives: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for round_ in range(starts + 10):
        for way in chance.sample(WAYS, len(WAYS)):
            if way in ("file", "both"):
                PRELOAD.write_text(f"{library}\n")
            taken = life(program, way, library)
            PRELOAD.unlink(missing_ok=True)
            if round_ >= 10:  # the first rounds warm the page cache
                lives[way].append(taken)
    seconds = {way: raw_data.rounded([taken for taken, _ in each]) for way, each in lives.items()}
    cpu = {way: raw_data.rounded([used for _, used in each]) for way, each in lives.items()}
    return raw | {"seconds": seconds, "cpu_seconds": cpu}


def table(raw: dict[str, Any]) -> str:
    """Return the figures as Markdown: medians, and the median difference from `neither` in the same round."""
    lines = ["| the hook by | time | more than without | CPU | more than without |", "|---|---|---|---|---|"]
    for way in WAYS:
        cells = []
        for kind in ("seconds", "cpu_seconds"):
            values, plain = raw[kind][way], raw[kind]["neither"]
            more = statistics.median(value - base for value, base in zip(values, plain, strict=True))
            cells += [f"{statistics.median(values) * 1e6:.0f} us", f"{more * 1e6:+.0f} us"]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, write the raw data, print the table."""
    parser = OneSentenceParser(
        prog="python -m measurements.cluster.device_plugin_preload", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--starts", type=counted, default=1_000, help="starts for each way")
    parser.add_argument("--seed", type=counted, default=1)
    parser.add_argument("--output", type=Path, default=Path("device_plugin_preload.json.gz"))
    parser.add_argument("program", nargs="*", default=["/bin/true"])
    arguments: argparse.Namespace = parser.parse_args()
    output = arguments.output.absolute()
    try:
        own_etc()
    except OSError as error:
        print(f"device_plugin_preload: needs root and an overlay file system: {error}", file=sys.stderr)
        return 1
    raw = measure(arguments.program, arguments.starts, arguments.seed)
    raw["command"] = raw["command"].replace(str(arguments.output), "FILE")
    raw_data.write(output, raw)
    print(table(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
