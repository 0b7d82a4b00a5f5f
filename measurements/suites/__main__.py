"""Runs a test suite of another project without the hook, as hp and as be: `python -m measurements.suites`.

Each file of the suite runs in a process of its own. A test that crashes or hangs its process is recorded, and the file
continues behind it. Tests that ended differently by role run once more. measurements.suites.page makes tables.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measurements.suites import running
from measurements.suites.catalogue import SUITES
from measurements.suites.outcomes import Comparison, raw
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.errors import OrionError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit status 0: the tests ran, 1: something failed, 2: wrong options, 130: Ctrl-C."""
    options = _parser().parse_args(arguments)
    suite = SUITES[options.suite]
    sources = options.sources.resolve()
    files = [file for file in suite.found(sources) if not options.only or any(each in file for each in options.only)]
    if not files:
        said = f"measurements.suites: {sources} has no file {' or '.join(suite.files)}; --sources must be {suite.home}"
        print(said, file=sys.stderr)
        return 2
    head = raw_data.header("measurements.suites")
    settings = running.Settings(
        suite, sources, files, options.limit_s, options.again_limit_s, options.test_limit_s, options.workers,
        options.together, options.simulated, options.parks, options.threads,
    )  # fmt: skip
    results = running.Results()
    status = _guarded(settings, lambda: running.run(settings, results))
    if status != 1:
        record = raw(head, options.suite, options.tests, settings, results)
        raw_data.write(options.output, record)
        say(f"{options.output}: {Comparison(record).sentence()}")
        if settings.parks:
            say(results.stays.sentence())
    return status


def _guarded(settings: running.Settings, work: Callable[[], None]) -> int:
    """Do the work; SIGTERM and SIGHUP end it like Ctrl-C."""

    def interrupt(*_: Any) -> None:
        settings.stop.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        work()
    except KeyboardInterrupt:
        say("interrupted; what was done is written")
        return 130
    except OrionError as error:
        print(f"measurements.suites: {error}", file=sys.stderr)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:15} {suite.title}; --sources is {suite.home}" for name, suite in SUITES.items()]
    examples = """
examples:
  python -m measurements.suites --suite cupy --sources ~/cupy/tests --tests v14.2.0 --output cupy.json.gz
  python -m measurements.suites --suite cuda-python-12 --sources .venv/others --simulated --output sim.json.gz
  python -m measurements.suites.page cupy.json.gz"""
    parser = OneSentenceParser(
        prog="python -m measurements.suites",
        description=__doc__,
        epilog="suites:\n" + "\n".join(lines) + "\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", required=True, choices=SUITES, help="the suite, see below")
    parser.add_argument("--sources", required=True, type=Path, help="folder with the suite's tests")
    parser.add_argument("--tests", default="", help="version of the tests, for the raw data")
    parser.add_argument("--output", required=True, type=Path, help="file of raw data (.json or .json.gz)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only files whose path has the text"
    )
    parser.add_argument("--limit-s", type=positive, default=300.0, help="time for each role (default: 300)")
    parser.add_argument("--again-limit-s", type=positive, default=120.0, help="time for all second runs (default: 120)")
    parser.add_argument("--test-limit-s", type=positive, default=90.0, help="time for one test (default: 90)")
    parser.add_argument("--workers", type=counted, default=1, help="processes of a role at a time (default: 1)")
    parser.add_argument("--together", action="store_true", help="all roles at once on one GPU (default: in turn)")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--parks", action="store_true", help="be processes leave the GPU and come back, all the time")
    ways.add_argument(
        "--threads", action="store_true", help="hp and be are client threads, beside a client of the other role"
    )
    parser.add_argument("--simulated", action="store_true", help="on a simulated GPU")
    return parser


if __name__ == "__main__":
    sys.exit(main())
