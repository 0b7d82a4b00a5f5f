"""A request that the operating system does not let the agent fulfil: the answer says what is wrong, and what to do."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from orion.node_agent.api import agent_pb2
from orion.node_agent.service.server import AgentService
from tests.node_agent.one_gpu import GPU


class Aborted(Exception):
    """In place of gRPC's own."""


async def refusal_after(number: int) -> tuple[grpc.StatusCode, str]:
    """Return the answer to a request during which a system call has failed with this error."""

    def park(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/a/file")

    async def abort(code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)

    agent: Any = SimpleNamespace(slots=SimpleNamespace(park=park), root=SimpleNamespace(path=Path("/the/root")))
    context: Any = SimpleNamespace(abort=abort)
    with pytest.raises(Aborted) as aborted:
        await AgentService(agent).ParkSlot(agent_pb2.ParkSlotRequest(gpu=GPU, name="be-0", away=True), context)
    code, details = aborted.value.args
    return code, details


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT])
async def test_what_the_node_has_run_out_of_is_named(number: int) -> None:
    code, details = await refusal_after(number)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.startswith("the agent's node has no resources left: ")
    assert os.strerror(number) in details


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EROFS, errno.EISDIR])
async def test_another_error_names_the_request_the_file_and_the_agents_folder(number: int) -> None:
    code, details = await refusal_after(number)
    assert code is grpc.StatusCode.INTERNAL
    assert details == (
        f"the agent cannot do ParkSlot: [Errno {number}] {os.strerror(number)}: '/a/file'; if that is a file, make "
        "sure that the agent can write to its folder /the/root, and try again"
    )
