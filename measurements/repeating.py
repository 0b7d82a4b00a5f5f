"""Does something again and again beside a measurement: looks at a figure, renews a lease."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeated(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `action` in a thread, so many seconds after its previous call, until the context ends.

    Raises:
        Exception: what `action` raised, at the end of the context: since then it was not called any more.
    """
    ended, failures = threading.Event(), list[Exception]()

    def again() -> None:
        try:
            while not ended.wait(every_s):
                action()
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    for failure in failures:
        raise failure
