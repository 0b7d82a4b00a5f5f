"""The state file for the next agent: `state.json`, written before a client may join.

The next agent must know a client that has received its index. So the agent writes the file before it sends the client
the index (the message WELCOME). If the disk is full, the agent sends it all the same: programs must start, and a client
that the next agent does not know joins that agent as a new one. The agent may write later that a client has left,
because the next agent removes a client that does not return anyway. A rename replaces the file, so a reader finds the
old or the new file. The file is not flushed to disk, because no client survives a reboot. The boot id in the file marks
a file of an earlier boot as invalid.

The agent makes each client's line only once and keeps it. So even with many clients, a write only concatenates lines.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from orion.atomic_files import replace_file
from orion.hook import layout, policy_table
from orion.node_agent.pages import policy_words
from orion.node_agent.pages.policy_words import Policy

_log = logging.getLogger(__name__)

_VERSION = 1


class RememberedClient(BaseModel):
    """A client that the previous agent let join; its pages are identified by device and inode."""

    slot: str
    place: int = Field(ge=0, lt=layout.GPU_CLIENTS_MAX)
    generation: int = Field(ge=1, lt=2**32)
    process_id: int
    started: int | None = None
    """ When the process started, since a later one may get its id; None: an older agent wrote the file, or it is not
    visible here. """
    command: str
    busy: tuple[int, int]
    record: tuple[int, int]
    job: tuple[tuple[int, int], Annotated[int, Field(ge=0, lt=layout.RANKS_MAX)]] | None = None
    """ Device and inode of its job's page, and its rank there; None: it has no such page. """
    left_mib: int | None = Field(default=None, ge=0)
    """ What it held of the GPU when its tenant was last asked to leave; None: not known. """

    @property
    def key(self) -> tuple[int, int]:
        """Client index and generation."""
        return self.place, self.generation


class RememberedSlot(BaseModel):
    """A slot; an owner is a process id and its start time."""

    name: str
    role: layout.Role
    permanent: bool
    memory_limit_bytes: int = Field(ge=0)
    request_milli: int = Field(default=0, ge=0, le=1_000)
    limit_milli: int = Field(default=0, ge=0, le=1_000)
    owner: tuple[int, int] | None
    sharers: list[tuple[int, int]] = []
    rule: str = ""
    """ The id in the resource file, and the processes that own the slot together because of it. """
    holder: str = ""
    """ JSON of the slot's holder, written and read by cluster/holders/grants.py. """
    claim: str = ""
    """ JSON of the claim that has the slot (slots/claim.py). """
    memory_request_bytes: int = Field(default=0, ge=0)
    memory_parks: bool = False
    memory_unified: bool = False
    memory_wait_ms: int = Field(default=0, ge=0)
    park: int = Field(default=0, ge=0, lt=2**32)
    """ The number of the last wish that its processes leave the GPU's memory. """
    wished_away: bool = False
    left_bytes: int = Field(default=0, ge=0)
    """ What its processes held of the GPU when they were last asked to leave it. """


_Words = dict[str, int]


def _policy(words: _Words) -> Policy:
    """Return a policy from `Policy.by_word`; words that the writing agent did not know get their defaults."""
    kind = words.get("kind", policy_words.DEFAULT.kind)
    known = {policy.number for policy in policy_table.TABLE.policies}
    return policy_words.DEFAULT.changed(kind if kind in known else None, words)


class RememberedGpu(BaseModel):
    """A GPU with its slots and clients."""

    uuid: str
    next_generation: int = Field(ge=1)
    policy: _Words
    default_policy: _Words | None = None
    """ The policy while no GPUShare decides it; None: an older agent wrote the file, use `policy`. """
    slots: list[RememberedSlot]
    clients: list[RememberedClient]

    def policies(self) -> tuple[Policy, Policy]:
        """Return the current policy, and the policy that applies while no GPUShare decides it."""
        return _policy(self.policy), _policy(self.policy if self.default_policy is None else self.default_policy)


class State(BaseModel):
    """The content of the file."""

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
    """Return a `RememberedGpu` as JSON; slots and clients are given as JSON."""
    head = f'"uuid":"{uuid}","next_generation":{next_generation},"policy":{json.dumps(policy.by_word())}'
    head += f',"default_policy":{json.dumps(default_policy.by_word())}'
    return f'{{{head},\n"slots":[{_lines(slots)}],\n"clients":[{_lines(clients)}]}}'


def _lines(members: Iterable[str]) -> str:
    return ",\n".join(members)


def boot_id() -> str:
    """Return the id of the machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class StateFile:
    """The state file in the agent's root directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boot = boot_id()
        self._failed = False

    def write(self, gpus: Iterable[str]) -> bool:
        """Replace the file; return whether that succeeded. A failure is logged once. `gpus`: results of `gpu_text`."""
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
        replace_file(self._path, text.encode(), mode=0o600, alone=True)

    def read(self) -> dict[str, RememberedGpu]:
        """Return what the previous agent of this boot saved, by GPU; empty if there is no usable file."""
        try:
            state = State.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            _log.warning("state: %s cannot be used, clients of an earlier agent stay unmanaged: %s", self._path, error)
            return {}
        if state.version != _VERSION or state.boot != self._boot:
            _log.info("state: %s is of another boot or version and is ignored", self._path)
            return {}
        return {gpu.uuid: gpu for gpu in state.gpus}
