"""Remembers which pods must not run without the hook (failClosed).

The agent reports these pods. The list is needed when their containers restart while the agent is away. A file
keeps the list for the next process of this program, because it and the agent are often replaced together.
"""

import json
import logging
from pathlib import Path

from orion.atomic_files import replace_file

_KEPT = 1024
""" Number of pods remembered; a node runs 110 pods by default. """

_log = logging.getLogger(__name__)


class FailClosedPods:
    """UIDs of the failClosed pods. The pod that was added last comes last.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pods: dict[str, None] = dict.fromkeys(self._read())

    def __contains__(self, pod: str) -> bool:
        return pod in self._pods

    def note(self, pod: str, fail_closed: bool) -> None:
        """Remember whether the agent reported a pod as failClosed."""
        if not pod or fail_closed == (pod in self._pods):
            return
        self._pods.pop(pod, None)
        if fail_closed:
            self._pods[pod] = None
        self._pods = dict.fromkeys([*self._pods][-_KEPT:])
        self._write()

    def _read(self) -> list[str]:
        try:
            pods = json.loads(self._path.read_text())
            if isinstance(pods, list) and all(isinstance(pod, str) for pod in pods):
                return pods
            raise ValueError("it is not a list of UIDs")
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as error:
            _log.error(
                "start: %s cannot be read: %s; the agent says again which pods are failClosed",
                self._path,
                error,
            )
            return []

    def _write(self) -> None:
        try:
            replace_file(self._path, json.dumps([*self._pods]).encode())
        except OSError as error:
            _log.error("start: the list of failClosed pods cannot be saved for the next process: %s", error)
