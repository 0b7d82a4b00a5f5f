"""Does something again and again beside a measurement: looks at a figure, renews a lease."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeated(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `action` in a thread, so many seconds after its previous call, until the context ends."""
    ended = threading.Event()

    def again() -> None:
        while not ended.wait(every_s):
            action()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
