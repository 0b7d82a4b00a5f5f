"""Helpers for the command lines of benchmarks: errors of one sentence, numbers as options, lines of progress."""

import argparse
import sys
import time
from typing import NoReturn


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
