"""Runs `orion mps-daemon` as a process with its own root, and scripts that replace NVIDIA's control daemon."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from orion.node_agent.mps.folder import MpsFolder, Phase, State
from tests.waiting import DEADLINE, eventually

GPU, OTHER = "GPU-00000000-0000-4000-8000-000000000000", "GPU-00000001-0000-4000-8000-000000000000"

SCRIPT = """#!/bin/sh
echo "$@" >> {arguments}
[ "$1" = -f ] || {{
    read -r question
    case $question in quit*) kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/process")" 2> /dev/null;; esac
    echo; exit 0
}}
{body}
"""
SERVES = 'cd "$CUDA_MPS_PIPE_DIRECTORY"; echo $$ > process; touch control; exec sleep 1000'
""" A program that accepts clients, and ends at `quit`. """


class MpsDaemon:
    """One MPS daemon."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = folder / "root", MpsFolder(folder / "root")
        self.programs, self.arguments = folder / "bin", folder / "arguments"
        self._log = folder / "log"
        self.environment = {**os.environ, "PATH": f"{self.programs}:/usr/bin:/bin"}
        self.process: subprocess.Popen[bytes] | None = None
        self.programs.mkdir()

    @property
    def command(self) -> list[str]:
        """The command that runs a daemon on this root."""
        return [sys.executable, "-m", "orion.cli", "mps-daemon", "--root", str(self.root)]

    def start(self, *options: str) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([*self.command, *options], env=self.environment, stdout=log, stderr=log)
        eventually(self.folder.daemon_lives, "the MPS daemon runs")

    @property
    def log(self) -> str:
        return self._log.read_text()

    def write_program(self, body: str) -> None:
        """Write scripts under the names of NVIDIA's programs; `body` is the shell code that runs with -f."""
        for name in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"):
            fresh = self.programs / f".{name}"
            fresh.write_text(SCRIPT.format(arguments=self.arguments, body=body))
            fresh.chmod(0o755)
            fresh.rename(self.programs / name)

    def state(self, uuid: str = GPU) -> State | None:
        return self.folder.state(uuid)

    def until(self, phase: Phase | None, uuid: str = GPU) -> State | None:
        found: list[State | None] = []

        def is_in_phase() -> bool:
            found.append(self.state(uuid))
            return (found[-1].phase if found[-1] else None) is phase

        eventually(is_in_phase, f"{uuid} is {phase}: {self.log}")
        return found[-1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)
