"""A be client without the hook that keeps to its turns and lies: `python lying_client.py SLOT_DIRECTORY OPTIONS`.

It joins as a client does, launches kernels in its slot's turns as its grant says, and writes what it likes into its
record page. So nothing that it gains comes from launches outside its turns. It works until it is killed.
"""

import argparse
import ctypes
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[2]))

from orion.bench.workloads import driver
from orion.hook import join, layout
from tests.node_agent.protocol_client import ProtocolClient
from tests.node_agent.turn_reading import turn_left_ns, wish

CLAIMED_NS = 100_000
POLL_SECONDS = 0.0003
PRETEND_SECONDS = 0.02
FLOOD_SECONDS = 0.002


class Gpu:
    """Kernels of one length on the simulated GPU."""

    def __init__(self, kernel_us: float) -> None:
        device = ctypes.c_int()
        driver.call("cuInit", 0)
        driver.call("cuDeviceGet", ctypes.byref(device), 0)
        driver.call("cuCtxSetCurrent", driver.made("cuDevicePrimaryCtxRetain", device))
        image = f"orion-sim 1\nkernel work duration_us={kernel_us:.3f} sms=132 params=\n"
        module = driver.made("cuModuleLoadData", image.encode())
        self._kernel = driver.made("cuModuleGetFunction", module, b"work")
        self._events = [driver.made("cuEventCreate", 2), driver.made("cuEventCreate", 2)]
        self._launched = 0

    def launch(self) -> None:
        """Launch a kernel, and wait for the one before, so that the GPU never idles."""
        event, before = self._events[self._launched % 2], self._events[(self._launched + 1) % 2]
        driver.call("cuLaunchKernel", self._kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        driver.call("cuEventRecord", event, None)
        if self._launched:
            driver.call("cuEventSynchronize", before)
        self._launched += 1

    def finish(self) -> None:
        driver.call("cuCtxSynchronize")


def work(clients: list[ProtocolClient], options: SimpleNamespace) -> None:
    """Use all turns of the slot, and report what the options say."""
    gpu, kernel_ns = Gpu(options.kernel_us), round(options.kernel_us * 1_000)
    liar, done = clients[0], 0
    print("works", flush=True)
    while True:
        # Half a kernel before the end, as the hook does: two kernels are in flight at most.
        if turn_left_ns(liar) > kernel_ns * 3 // 2:
            gpu.launch()
            done += 1
            liar.record.set(layout.RecordPage, "gpu_ns", round(done * kernel_ns * options.reports))
            liar.record.set(layout.RecordPage, "launches", done)
        else:
            gpu.finish()
            time.sleep(POLL_SECONDS)


def pretend(clients: list[ProtocolClient], options: SimpleNamespace) -> None:
    """Launch nothing, and say that there is work and progress."""
    print("works", flush=True)
    count = 0
    while True:
        count += 1
        for client in clients:
            client.record.set(layout.RecordPage, "launches", count)
        time.sleep(PRETEND_SECONDS)


def flood(client: ProtocolClient) -> None:
    """Hand back and ask, again and again."""
    while True:
        for wanted in (join.TurnWish.HANDED_BACK, join.TurnWish.WANTED):
            client.record.set(layout.RecordPage, "in_flight_ns", CLAIMED_NS * (wanted == join.TurnWish.WANTED))
            wish(client, wanted)
        time.sleep(FLOOD_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--reports", type=float, default=1.0, help="the part of its GPU time that it reports")
    parser.add_argument("--kernel-us", type=float, default=200.0)
    parser.add_argument("--processes", type=int, default=1, help="how many clients join; all claim work")
    parser.add_argument("--idle", action="store_true", help="launch nothing")
    parser.add_argument("--flood", action="store_true", help="hand back and ask without end")
    parser.add_argument("--leave", action="store_true", help="close the socket after joining")
    options = parser.parse_args(namespace=SimpleNamespace())
    clients = [ProtocolClient(options.directory).join() for _ in range(options.processes)]
    for client in clients:
        client.record.set(layout.RecordPage, "piece_ns", round(options.kernel_us * 1_000))
        client.record.set(layout.RecordPage, "in_flight_ns", CLAIMED_NS)
        if options.leave:
            client.sock.close()
    if options.flood:
        threading.Thread(target=flood, args=(clients[0],), daemon=True).start()
    (pretend if options.idle else work)(clients, options)


if __name__ == "__main__":
    main()
