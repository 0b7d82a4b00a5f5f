"""What one agent leaves to the next: `state.json`, written before a client is let in.

A client that has received its index must be known to the next agent, so the file is current before each WELCOME;
departures may wait, since a client that does not come back is dropped anyway. It is replaced by a rename: a
reader finds the old one or the new one. It is not flushed to disk, because no client survives the machine; the boot's
identity in it tells a file of an earlier boot.

The clients' lines are made once each, so writing costs a join of strings whatever the number of clients.
"""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from orion.hook import layout, policy_table
from orion.node_agent.pages import policy_words
from orion.node_agent.pages.policy_words import Policy

_log = logging.getLogger(__name__)

_VERSION = 1


class RememberedClient(BaseModel):
    """A client that another agent let in; pages are named by device and inode."""

    slot: str
    place: int = Field(ge=0, lt=layout.PLACES)
    generation: int = Field(ge=1, lt=2**32)
    process_id: int
    command: str
    busy: tuple[int, int]
    record: tuple[int, int]

    @property
    def key(self) -> tuple[int, int]:
        """Client index and generation."""
        return self.place, self.generation


class RememberedSlot(BaseModel):
    """A slot; the owner is a process id and its start time."""

    name: str
    role: layout.Role
    permanent: bool
    memory_limit_bytes: int = Field(ge=0)
    weight_milli: int = Field(default=1_000, gt=0)
    owner: tuple[int, int] | None
    holder: str = ""
    """ What the cluster's side of the agent knew of who holds it. """


_Words = dict[str, int]


def _policy(words: _Words) -> Policy:
    """Return a policy of `Policy.by_word`; what the agent that wrote it did not know has its default."""
    kind = words.get("kind", policy_words.DEFAULT.kind)
    known = {policy.number for policy in policy_table.TABLE.policies}
    return policy_words.DEFAULT.changed(kind if kind in known else None, words)


class RememberedGpu(BaseModel):
    """A GPU with its slots and clients."""

    uuid: str
    next_generation: int = Field(ge=1)
    policy: _Words
    default_policy: _Words | None = None
    """ Where no share decides; None: an older agent wrote this, and it is the policy. """
    slots: list[RememberedSlot]
    clients: list[RememberedClient]

    def policies(self) -> tuple[Policy, Policy]:
        """Return the policy, and the one where no share decides."""
        return _policy(self.policy), _policy(self.policy if self.default_policy is None else self.default_policy)


class State(BaseModel):
    """The whole file."""

    version: int = _VERSION
    boot: str
    gpus: list[RememberedGpu]


def gpu_text(
    uuid: str,
    next_generation: int,
    policy: Policy,
    default_policy: Policy,
    slots: Iterable[str],
    clients: Iterable[str],
) -> str:
    """Return a `RememberedGpu` as JSON, of slots and clients that are JSON already."""
    head = f'"uuid":"{uuid}","next_generation":{next_generation},"policy":{json.dumps(policy.by_word())}'
    head += f',"default_policy":{json.dumps(default_policy.by_word())}'
    return f'{{{head},\n"slots":[{_lines(slots)}],\n"clients":[{_lines(clients)}]}}'


def _lines(members: Iterable[str]) -> str:
    return ",\n".join(members)


def boot_id() -> str:
    """Return what names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class StateFile:
    """The file, in the agent's root directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(path.name + ".new")
        self._boot = boot_id()
        self._failed = False

    def write(self, gpus: Iterable[str]) -> bool:
        """Replace the file by these parts, each by `gpu_text`; return whether that was possible, said once if not."""
        try:
            self._replace(gpus)
        except OSError as error:  # the directory is full or not writable
            if not self._failed:
                _log.error("state: cannot be written, a restart would lose the newest clients: %s", error)
            self._failed = True
        else:
            self._failed = False
        return not self._failed

    def _replace(self, gpus: Iterable[str]) -> None:
        shared_gpus = ",".join(gpus)
        text = f'{{"version":{_VERSION},"boot":"{self._boot}","gpus":[{shared_gpus}]}}\n'
        descriptor = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
        os.replace(self._new, self._path)

    def read(self) -> dict[str, RememberedGpu]:
        """Return what the last agent of this boot left, by GPU; nothing when that cannot be used."""
        try:
            state = State.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            _log.warning("state: %s cannot be used, clients of an earlier agent stay unmanaged: %s", self._path, error)
            return {}
        if state.version != _VERSION or state.boot != self._boot:
            _log.info("state: %s is of another boot or version and is left aside", self._path)
            return {}
        return {gpu.uuid: gpu for gpu in state.gpus}
