"""The entry point of `orion`. Ctrl-C ends it with status 130 and without a traceback, whenever it comes.

This module imports next to nothing, because an interrupt before its first line is Python's own to report. While the
commands load, an interrupt ends the process at once: there is nothing to clean up, and an exception would be lost in
code that Python calls back during imports. Rejected: SIGINT's default action, because the status would be a signal's.
"""

import os
import sys

try:
    import gc
    import signal
except KeyboardInterrupt:
    os._exit(130)

INTERRUPTED = 130
""" The exit status after Ctrl-C, as shells have it. """
LATER_S = 0.01
""" After this time, a callback that lost an interrupt has ended. """
_YOUNG = 30_000
""" How many new objects Python makes before it looks for garbage. Modules make hardly any garbage while they load. """


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: the words after `orion`; None: those of this process, which ends afterwards.
    """
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (until the process ends)
    if arguments is None:
        if sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # rich shortens with an ellipsis
        sys.unraisablehook = _interrupt_again
        gc.set_threshold(_YOUNG)
    try:
        before = _ends_at_once()
        from orion.cli import commands

        _set(before)
        return commands.run_line(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _is_interrupted(error):
            return INTERRUPTED
        raise
    finally:
        if arguments is None:
            _ends_at_once()  # Python's own end takes a while too
            gc.freeze()  # it would look at all that is loaded, several times


def _ends_at_once() -> object:
    """Let an interrupt end the process at once, unless the caller ignores or handles it; return what it did before."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        _set(_end)
    return before


def _set(handler: object) -> None:
    try:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    except ValueError:  # only the main thread can, and only the main thread is interrupted
        return


def _end(number: int, frame: object) -> None:
    try:
        sys.stdout.flush()
    finally:
        os._exit(INTERRUPTED)


def _interrupt_again(lost: "sys.UnraisableHookArgs") -> None:
    """Repeat an interrupt that came in a callback, such as those of imports, from which no exception can get out."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    import threading

    timer = threading.Timer(LATER_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def _is_interrupted(error: BaseException | None) -> bool:
    """Return whether an interrupt caused an error: Python 3.11 makes a RuntimeError of it while it makes a class."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
