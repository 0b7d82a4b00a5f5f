"""Helpers for the command lines of benchmarks: errors of one sentence, options, lines of progress, signals."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from orion.errors import Invalid


class OneSentenceParser(argparse.ArgumentParser):
    """An ArgumentParser that reports an error in one sentence with the allowed options; exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit."""
        allowed = ", ".join(action.option_strings[-1] for action in self._actions if action.option_strings)
        hint = f" (the options are {allowed})" if "unrecognized" in message else ""
        print(f"{self.prog}: {message}{hint}", file=sys.stderr)
        raise SystemExit(2)


def positive(text: str) -> float:
    """Parse a positive number."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def counted(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def say(text: str) -> None:
    """Print a line of progress, with the time of day, and flush it."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def check_only(names: Sequence[str], only: str | None) -> None:
    """Refuse an option --only that names none of a scenario's settings."""
    if only is not None and only not in names:
        raise Invalid(f"--only {only}: there is no such setting; there are {', '.join(names)}")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the measurement like Ctrl-C."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
