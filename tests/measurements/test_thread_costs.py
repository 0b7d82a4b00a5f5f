"""CPU time and instructions of another process's threads."""

import subprocess
import sys

from measurements.overhead.thread_costs import Cost, Threads

RENAMES_ITSELF = """
open("/proc/self/comm", "w").write("orion-test"); print("ready", flush=True); input()
end = __import__("time").process_time() + 0.2
while __import__("time").process_time() < end: pass
print("done", flush=True); input()
"""


def test_the_cost_of_threads_grows_with_their_work() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RENAMES_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with Threads(process.pid) as threads:
            before = threads.read()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            after = threads.read()
        of_all, of_hook = (late.since(early) for early, late in zip(before, after, strict=True))
        assert of_all.cpu_s >= 0.19
        assert of_hook == of_all  # its only thread has a name of the hook's
        assert of_all.instructions is None or of_all.instructions > 1_000_000
        process.stdin.write("\n")


def test_instructions_are_unknown_unless_both_readings_have_them() -> None:
    assert Cost(2.0, 50).since(Cost(1.0, 20)) == Cost(1.0, 30)
    assert Cost(2.0, 50).since(Cost(1.0, None)) == Cost(1.0, None)
