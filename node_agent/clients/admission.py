"""Whether a process may join a slot now, and what the agent tells one that may not."""

import random

from orion.errors import OrionError
from orion.hook import join, layout
from orion.node_agent.slots.slot import Slot

_RETRY_SPREAD = 10


class JoinRefused(OrionError):
    """The agent answers a HELLO with REFUSED."""

    def __init__(self, code: join.Refusal, sentence: str, retry_ms: int = 0) -> None:
        super().__init__(sentence)
        self.code = code
        self.retry_ms = retry_ms


def admit(slot: Slot, hello: join.Hello) -> int:
    """Return the layout version that the agent and the process have in common.

    Raises:
        JoinRefused: too many processes of the slot join at once, or there is no common version.
    """
    wait = slot.joins.take()
    if wait:
        retry_ms = int(1000 * wait * random.uniform(1, _RETRY_SPREAD)) + 1
        raise JoinRefused(join.Refusal.RATE, "too many processes of this slot join at once; try again", retry_ms)
    version: int = min(layout.LAYOUT_NEWEST, hello.layout_newest)
    if version < max(layout.LAYOUT_OLDEST, hello.layout_oldest):
        raise JoinRefused(join.Refusal.LAYOUT, _layouts_differ(hello))
    return version


def _layouts_differ(hello: join.Hello) -> str:
    if layout.LAYOUT_NEWEST < layout.BENCH_LAYOUTS <= hello.layout_newest < 2 * layout.BENCH_LAYOUTS:
        return "liborion_hook_bench.so works only with the agent of `orion bench`: preload liborion_hook.so"
    if hello.layout_newest < layout.BENCH_LAYOUTS <= layout.LAYOUT_NEWEST:
        return "the agent of `orion bench` accepts only processes of that command: preload liborion_hook_bench.so"
    agent = f"{layout.LAYOUT_OLDEST} to {layout.LAYOUT_NEWEST}"
    return f"the agent supports layouts {agent}, the hook {hello.layout_oldest} to {hello.layout_newest}"
