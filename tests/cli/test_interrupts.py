"""Ctrl-C ends a command with status 130 and without a traceback, at whichever moment of its start it comes.

A program counts the calls of Python functions from the first line of the entry point's module on, and sends itself
SIGINT at one of them. So the moments are the same in each run, and callbacks are among them.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.yaml"
PROGRAM = """
import os, sys
import orion.cli
import _signal
_signal.signal(_signal.SIGINT, _signal.default_int_handler)
at, calls = int(sys.argv.pop(1)), 0
def count(frame, event, argument):
    global calls
    if event == "call" and (calls or frame.f_code.co_filename.endswith("/cli/main.py")):
        calls += 1
        if calls == at:
            os.kill(os.getpid(), _signal.SIGINT)
sys.setprofile(count)
import orion.cli.main
status = orion.cli.main.main()
if not at:
    sys.setprofile(None)
    print(calls)
sys.exit(status)
"""
MOMENTS = 12


@pytest.mark.parametrize(
    "arguments", [["--version"], ["plan", str(EXAMPLE), "--ask", "finish", "--json"]], ids=["version", "plan"]
)
def test_an_interrupt_ends_a_command_quietly_whenever_it_comes(arguments: list[str]) -> None:
    calls = int(_run(0, arguments).stdout.split()[-1])
    moments = sorted({2, 3, 4, *(round(calls * step / MOMENTS) for step in range(1, MOMENTS))})
    with ThreadPoolExecutor(2) as pool:
        ended = dict(zip(moments, pool.map(lambda at: _run(at, arguments), moments), strict=True))
    assert {at: (done.returncode, done.stderr.strip()) for at, done in ended.items()} == dict.fromkeys(
        moments, (130, "")
    )


def test_an_interrupt_in_a_callback_is_not_lost() -> None:
    program = """
import os, signal, sys, weakref
from orion.cli import commands, main
signal.signal(signal.SIGINT, signal.default_int_handler)
class Thing: pass
def run_line(arguments):
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT) or sum(range(9)))
    del thing
    signal.pause()
commands.run_line = run_line
sys.exit(main.main())
"""
    done = _run(0, [], program)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_ignored_interrupt_stays_ignored() -> None:
    """A shell starts programs in the background with SIGINT ignored."""
    ignored = PROGRAM.replace("_signal.default_int_handler)", "_signal.SIG_IGN)")
    done = _run(1000, ["--version"], ignored)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "orion", "")


def _run(at: int, arguments: list[str], program: str = PROGRAM) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, str(at), *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
