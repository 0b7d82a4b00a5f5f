"""A client for tests of several processes: it reads one command per line and answers each with one line."""

import os
import sys
import time

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, ok
from tests.sim.scenario_graph import Word, cut_graph


def main() -> None:
    """Commands: launch N US SMS | sync | green SMS GROUP | alloc BYTES | free | busy SECONDS US SMS | wait.

    And: close | exit.
    """
    gpu = Device()
    stream = gpu.stream()
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        command, *rest = line.split()
        numbers = [int(float(word) * 1000) / 1000 for word in rest]
        answer: object = "done"
        if command == "launch":
            for _ in range(int(numbers[0])):
                gpu.launch(stream, int(numbers[1]), int(numbers[2]))
        elif command == "green":  # later launches use a stream of a green context
            stream = gpu.green_stream(int(numbers[0]), int(numbers[1]))
        elif command == "sync":
            begun = time.monotonic()
            ok(cuda.cuStreamSynchronize(stream))
            answer = time.monotonic() - begun
        elif command == "alloc":
            ok(cuda.cuMemAlloc(int(numbers[0])))
        elif command == "free":
            answer = int(ok(cuda.cuMemGetInfo())[0])
        elif command == "busy":  # closed loop: number of kernels completed in this many seconds
            end, count = time.monotonic() + numbers[0], 0
            while time.monotonic() < end:
                gpu.launch(stream, int(numbers[1]), int(numbers[2]))
                ok(cuda.cuStreamSynchronize(stream))
                count += 1
            answer = count
        elif command == "wait":  # launch a graph that a closed word blocks; later work of the stream is behind it
            ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(cut_graph(gpu, Word())[0], 0)), stream))
        elif command == "close":
            os.closerange(3, 4096)
        elif command == "exit":
            return
        print(answer, flush=True)


if __name__ == "__main__":
    main()
