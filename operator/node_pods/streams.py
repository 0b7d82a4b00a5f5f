"""The open calls of all agents: how many there may be, and which of them a change concerns."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

OF_NODE_MAX = 2
""" A node has one agent. The call of the agent before it may last until its connection is found dead. """


class Stream:
    """One agent's call. `ended` is set if a newer call of its node has taken its place."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.ended = False

    def wake(self) -> None:
        """Tell the call that the pods of its node may have changed, or that it has ended."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait for the next `wake`; return at once if there was one since the last wait."""
        await self._changed.wait()
        self._changed.clear()


class Streams:
    """All open calls, by node."""

    def __init__(self) -> None:
        self._of_node: defaultdict[str, list[Stream]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(len(streams) for streams in self._of_node.values())

    def open(self, node: str) -> Stream:
        """Add a call. If the node has too many, its oldest one ends."""
        streams, stream = self._of_node[node], Stream()
        streams.append(stream)
        if len(streams) > OF_NODE_MAX:
            oldest = streams.pop(0)
            oldest.ended = True
            oldest.wake()
        return stream

    def close(self, node: str, stream: Stream) -> None:
        """Remove a call that is over."""
        streams = self._of_node[node]
        if stream in streams:
            streams.remove(stream)
        if not streams:
            del self._of_node[node]

    def wake(self, nodes: Iterable[str]) -> None:
        """Wake the calls of these nodes."""
        for node in nodes:
            for stream in self._of_node.get(node, ()):
                stream.wake()
