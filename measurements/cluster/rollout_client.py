"""Sends HTTP requests at a fixed rate until its standard input ends: `python -m measurements.cluster.rollout_client`.

An open loop: each request is sent when it is due, on a connection of its own, even if earlier ones are unanswered. Its
latency counts from the time at which it was due. `rollout_latency` runs this program on the node, where the Service's
address is known.
"""

import asyncio
import json
import sys
import time

LIMIT_S = 10.0
""" A request that takes longer has failed. """


async def ask(host: str, port: int) -> None:
    """Send one request, and read its answer.

    Raises:
        OSError: there is no answer.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: serve\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    finally:
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(b"}\n"):
        raise ConnectionError(f"the answer is {answer!r}")


async def send(host: str, port: int, rate: float) -> list[tuple[float, float, float, str]]:
    """Send requests until the standard input ends; return when each was due and sent, its latency, and its failure.

    Times are monotonic seconds.
    """
    rows: list[tuple[float, float, float, str]] = []

    async def request(due: float) -> None:
        sent, failure = time.monotonic(), ""
        try:
            async with asyncio.timeout(LIMIT_S):
                await ask(host, port)
        except OSError as error:  # TimeoutError is one
            failure = f"{type(error).__name__}: {error}"
        rows.append((due, sent, time.monotonic() - due, failure))

    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    due = time.monotonic()
    async with asyncio.TaskGroup() as requests:
        while not ended.done():
            due += 1 / rate
            await asyncio.sleep(due - time.monotonic())
            requests.create_task(request(due))
    return rows


def main() -> int:
    """Send the requests, and write the rows as JSON."""
    host, port, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    json.dump(asyncio.run(send(host, port, rate)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
