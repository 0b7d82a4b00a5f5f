"""Runs programs of others in slots with a limit of memory, and lets them leave the GPU: `measurements.memory.programs`.

    python -m measurements.memory.programs --limit-mib 12288 --away 2 --output programs.json burn="./gpu_burn 30"

All programs run at once, each in a be slot of its own. The figures are each program's exit status, the most that the
driver listed for its processes, and how long it took to leave and to come back. A program that checks its own results
shows whether it computed on where it was.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measurements.repeating import repeated
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.bench.managed import ManagedGPU, machine
from orion.errors import OrionError
from orion.node_agent.gpus.interface import GpuSource
from orion.node_agent.gpus.nvml import NvmlGpus

MIB = 1 << 20
LOOK_SECONDS = 0.05
CHANGE_SECONDS = 60.0
Held = Callable[[], Mapping[int, int | None]]


@dataclass
class Program:
    """One program in its slot: what it is, and what was seen of it, for so many seconds."""

    name: str
    slot: str
    process: subprocess.Popen[bytes]
    output: Path
    began: float = field(default_factory=time.monotonic)
    lasted: float = 0.0
    most_mib: int = 0
    changes: list[dict[str, float]] = field(default_factory=list)
    killed: bool = False

    @property
    def runs(self) -> bool:
        """Whether the program has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the program and its children, once: later the number may be another's."""
        if not self.killed:
            self.killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self, seconds: float) -> dict[str, Any]:
        """Wait for the program, and end it with its children if it takes longer; return what was seen."""
        try:
            status: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        self.kill()
        said = self.output.read_text(errors="replace").replace("\r", "\n").split("\n")
        last = [line.strip() for line in said if line.strip()][-3:]
        seen = {"seconds": round(self.lasted, 1), "most_mib": self.most_mib, "changes": self.changes, "last": last}
        return {"name": self.name, "status": status, **seen}


def with_children(process_id: int) -> set[int]:
    """Return a process's id and those of all processes below it."""
    found = {process_id}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found |= with_children(int(child))
    return found


def look(programs: list[Program], held: Held) -> None:
    """Note what the driver lists for each program, if that is more than before."""
    listed = held()
    for program in programs:
        if program.runs:
            program.lasted = time.monotonic() - program.began
            mine = sum(listed.get(each) or 0 for each in with_children(program.process.pid))
            program.most_mib = max(program.most_mib, -(-mine // MIB))


def change(gpu: ManagedGPU, programs: list[Program], away: bool) -> dict[str, float]:
    """Let the programs leave, or come back; return how long each took, in seconds. One that has ended takes no time."""
    began, took, running = time.monotonic(), dict[str, float](), {each.slot: each for each in programs if each.runs}
    for slot in running:
        gpu.park(slot, away)
    while len(took) < len(running) and time.monotonic() - began < CHANGE_SECONDS:
        states = {slot.name: slot.parking.state for slot in gpu.snapshot().slots}
        for slot, program in running.items():
            if slot not in took and (states[slot] == ("parked" if away else "") or not program.runs):
                took[slot] = round(time.monotonic() - began, 2)
        time.sleep(LOOK_SECONDS)
    return took


def start(options: Any, gpu: ManagedGPU, output: Path, command: str) -> Program:
    """Start a program in a slot of its own."""
    shares = {"memory_parks": True, "memory_request_bytes": options.limit_mib * MIB // 4} if options.away else {}
    before = {slot.name for slot in gpu.snapshot().slots}
    environment = gpu.client_environment("be", memory={"memory_limit_bytes": options.limit_mib * MIB, **shares})
    slot = next(slot.name for slot in gpu.snapshot().slots if slot.name not in before)
    with output.open("wb") as said:
        process = subprocess.Popen(
            shlex.split(command), env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    return Program(output.name, slot, process, output)


def run(options: Any, gpu: ManagedGPU, held: Held, folder: Path) -> list[dict[str, Any]]:
    """Run all programs; return what was seen of each."""
    programs: list[Program] = []
    with contextlib.ExitStack() as stack:
        for name, command in options.programs:
            programs.append(start(options, gpu, folder / name, command))
            stack.callback(programs[-1].kill)
        stack.enter_context(repeated(lambda: look(programs, held), LOOK_SECONDS))
        for turn in range(options.away):
            time.sleep(options.here_s)
            out = change(gpu, programs, True)
            time.sleep(options.away_s)
            back = change(gpu, programs, False)
            for program in programs:
                if program.slot in out:
                    program.changes.append({"out": out[program.slot], "back": back.get(program.slot, -1.0)})
            say(f"change {turn + 1} of {options.away}: out {out}, back {back}")
        until = time.monotonic() + options.limit_s
        return [program.end(max(0.1, until - time.monotonic())) for program in programs]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit status 0: all programs ended with 0, 1: one did not, or there is no GPU."""
    options = _parser().parse_args(arguments)
    try:
        with (
            machine(options.simulated) as base,
            ManagedGPU(base, options.simulated) as gpu,
            tempfile.TemporaryDirectory(prefix="orion-programs-") as folder,
        ):
            found = run(options, gpu, _held(gpu, options.simulated), Path(folder))
    except OrionError as error:
        print(f"measurements.memory.programs: {error}", file=sys.stderr)
        return 1
    for each in found:
        changes = "; ".join(f"out {change['out']} s, back {change['back']} s" for change in each["changes"])
        say(f"{each['name']}: status {each['status']}, {each['most_mib']} of {options.limit_mib} MiB; {changes or '-'}")
    raw = {"limit_mib": options.limit_mib, "commands": dict(options.programs), "programs": found}
    raw_data.write(options.output, {**raw_data.header("measurements.memory.programs"), **raw})
    return 0 if all(each["status"] == 0 for each in found) else 1


def _held(gpu: ManagedGPU, simulated: bool) -> Held:
    """Return a function that asks the driver what each process holds; nothing on a simulated GPU."""
    if simulated:
        return dict
    source: GpuSource = NvmlGpus()
    mine = next(each for each in source.find() if each.uuid == gpu.gpu.uuid)
    return lambda: source.memory_of_processes(mine) or {}


def _program(text: str) -> tuple[str, str]:
    name, given, command = text.partition("=")
    if not given or not command.strip():
        raise ValueError(text)
    return name, command


def _parser() -> OneSentenceParser:
    parser = OneSentenceParser(prog="python -m measurements.memory.programs", description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="+", type=_program, metavar="NAME=COMMAND", help="the programs")
    parser.add_argument("--limit-mib", type=counted, required=True, help="limit of each slot")
    parser.add_argument("--away", type=int, default=0, help="how often the programs leave the GPU (default: never)")
    parser.add_argument("--here-s", type=positive, default=5.0, help="how long they stay before (default: 5)")
    parser.add_argument("--away-s", type=positive, default=2.0, help="how long they stay away (default: 2)")
    parser.add_argument("--limit-s", type=positive, default=60.0, help="for the rest of the programs (default: 60)")
    parser.add_argument("--output", type=Path, required=True, help="file of raw data (.json or .json.gz)")
    parser.add_argument("--simulated", action="store_true", help="on a simulated GPU")
    return parser


if __name__ == "__main__":
    sys.exit(main())
