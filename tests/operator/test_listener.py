"""A listener in a process that has no descriptors left: a process of its own, with a low limit."""

import subprocess
import sys

PROGRAM = """
import asyncio, os, resource, socket
from orion.operator.listening.listener import Listener

async def main():
    accepted, failures, begun = [], [], asyncio.Event()
    class Counting(Listener):
        def _pause(self, error):
            failures.append(error.errno)
            begun.set()
            super()._pause(error)
    listener = Counting(lambda connection, address: accepted.append(connection))
    port = listener.listen("127.0.0.1", 0)
    peer = socket.socket()
    peer.setblocking(False)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    peer.connect_ex(("127.0.0.1", port))
    await begun.wait()
    for _ in range(1_000):  # each turn of the loop would be another attempt
        await asyncio.sleep(0)
    attempts = len(failures)
    for descriptor in held:
        os.close(descriptor)
    async with asyncio.timeout(30):
        while not accepted:
            await asyncio.sleep(0.01)
    listener.close()
    print(attempts, set(failures), accepted[0].getblocking())

asyncio.run(main())
"""


def test_a_listener_without_descriptors_pauses_and_goes_on_later() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "1 {24} False\n", done.stderr
    assert done.stderr.count("no connection can be accepted") == 1
