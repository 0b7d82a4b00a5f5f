"""The device plugin as a separate process with its own folders."""

import contextlib
import http.client
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.loaded import Started, start
from tests.waiting import DEADLINE, eventually

__all__ = ["DEADLINE", "PluginProcess", "eventually"]


class PluginProcess:
    """A process of `orion device-plugin`.

    Args:
        folder: the folder of its log.
        kubelet_folder: the folder of the stand-in kubelet's sockets.
        root: the agent's directory.
        hook_folder: where the plugin installs the hook.
        options: further options of the command.
        name: the name of its log, without suffix.
        environment: variables that are added to this process's environment.
    """

    def __init__(
        self,
        folder: Path,
        kubelet_folder: Path,
        root: Path,
        hook_folder: Path,
        *options: str,
        name: str = "plugin",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log_file = folder / f"{name}.log"
        self._command = [
            *("device-plugin", "--root", str(root)),
            *("--kubelet-folder", str(kubelet_folder), "--hook-folder", str(hook_folder)),
            *("--metrics-address", "127.0.0.1:0", *options),
        ]
        self._environment = {**os.environ, **(environment or {})}
        self.process: Started | None = None
        self._began = 0

    def start(self) -> "PluginProcess":
        self._began = len(self.log) if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self.process = start("orion.cli", self._command, log, self._environment)
        return self

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def until_logged(self, sentence: str) -> None:
        """Wait until the log of this process contains a sentence."""
        eventually(lambda: sentence in self.log[self._began :] or not self.running, f"the plugin logs {sentence!r}")
        assert sentence in self.log[self._began :], self.log

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)

    def metrics(self) -> dict[str, float]:
        """Return the plugin's metrics by name and labels."""
        status, text = self.ask("/metrics")
        assert status == 200
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}

    @property
    def metrics_port(self) -> int:
        """The port on which the plugin serves metrics and probes, according to its log."""
        self.until_logged("metrics: on http")
        return int(re.findall(r"metrics: on http://\S+:(\d+)/metrics", self.log)[-1])

    def ask(self, path: str) -> tuple[int, str]:
        """Return the status and the text of the plugin's answer to an HTTP GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def close(self) -> None:
        if self.running:
            assert self.process is not None
            self.process.kill()
            self.process.wait(DEADLINE)
