"""Programs that ask NVML, in a slot of a test's machine, and what they see."""

import json
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hook.harness import Machine
from tests.hook.scripted_client import DEADLINE, eventually

MIB = 1 << 20
LIMIT = 512 * MIB
GPU = 80 << 30
PROGRAM = Path(__file__).parent / "monitor_program.py"


class Monitor:
    """A running `monitor_program.py`."""

    def __init__(self, command: list[str], environment: dict[str, str], complaints: Path) -> None:
        self._complaints = complaints
        with complaints.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*command, sys.executable, str(PROGRAM)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                bufsize=1,
            )

    @property
    def said(self) -> list[str]:
        return [line for line in self._complaints.read_text().splitlines() if line.startswith("orion:")]

    def do(self, command: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        assert select.select([self.process.stdout], [], [], DEADLINE)[0], f"no answer to {command}"
        line = self.process.stdout.readline()
        assert line, self._complaints.read_text()
        return json.loads(line)

    def memory(self) -> tuple[int, int, int]:
        """Return total, used and free. Both versions of the function agree."""

        def agreeing() -> list[int]:
            seen = self.do("look")  # the slot's sum may change between its two calls
            total, used, free, reserved = seen["second"]
            return [total, used, free, reserved] if seen["plain"] == [total, used + reserved, free] else []

        total, used, free, reserved = eventually(agreeing, "both versions agree")
        assert total == used + free + reserved
        return total, used, free

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., Monitor]


def client(start: Start, slot: str = "be-0", *prefix: str) -> Monitor:
    """Start a monitor that is a CUDA client."""
    monitor = start(slot, *prefix)
    monitor.do("context")
    return monitor


def ways(machine: Machine, root: Path | None, *arguments: str) -> dict[str, list[int]]:
    command = [str(machine.build / "test" / "client_nvml"), *arguments]
    done = subprocess.run(command, env=machine.client_environment(root), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "orion:" not in done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {way: [int(number) for number in numbers] for way, *numbers in rows}
