"""Processes that simulate side by side; they end with the command, also after Ctrl-C or if one of them is killed."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from orion.errors import Conflict


@contextmanager
def started(count: int, begin: Callable[..., None] | None = None, *arguments: Any) -> Iterator[ProcessPoolExecutor]:
    """Provide processes; end them if the body raises.

    Args:
        count: how many processes run at the most.
        begin: each process calls it first.
        *arguments: what `begin` is called with.

    Raises:
        Conflict: a process ended.
    """
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), begin, arguments) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            raise Conflict("a process ended in its run; is memory short? give fewer --workers") from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Let processes that start in the body ignore Ctrl-C: the command handles it and ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # processes inherit an ignored signal
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
