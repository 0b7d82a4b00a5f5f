"""What happens at the head of hp's busy periods: `python -m orion.bench.busy_periods FOLDER`, FOLDER of a colocation.

Six Markdown tables from the raw data, for docs/results/colocation.md. By turns: requests that held everybody up for
longer than any be kernel runs (stalls: the host's doing, they come alone as well); hp's tail with and without them, and
what queueing alone makes of late heads; what requests that found the GPU idle took longer beside be, against those that
queued; the time that be lost a busy period. Where contexts run together a request is slower all along: what the queue
makes of that. And for both, how the slowdown goes on as a busy period grows old: what is left of it long after be's
last kernel is not be's doing.

Refused: to put this into `orion bench report`, which says whether targets hold by all that was measured. This says why.
"""

import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orion.bench.colocation import rates
from orion.bench.colocation.analysis import SHORTEST_GAP, busy_periods_per_second
from orion.bench.colocation.run_files import BE_ALONE, SUFFIX, Run, RunFolder
from orion.bench.commandline import OneSentenceParser
from orion.bench.estimates import Samples
from orion.bench.late_heads import queued_p99
from orion.bench.samples import percentile

STALL = 4e-3  # seconds longer than a run's median service time; hp waits for no be work that long beside these loads
SWITCH = 0.14e-3  # seconds until a GPU that another process has used is hp's; docs/results/context-switch.md
LONGEST_KERNEL = 10e-3  # seconds; beside longer ones a stall cannot be told from waiting for a kernel
RANKS = (10, 50, 90, 99)
SLOWDOWNS = (1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
PLACES = {"head": (0, 0), "2nd": (1, 1), "3rd": (2, 2), "4th": (3, 3), "6th to 8th": (5, 7), "later": (8, 10**9)}
"""In a busy period: first and last index."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Round:
    """One system in one round, with its references."""

    number: int
    run: Run
    alone: Run
    capacity: float
    """hp's closed-loop rate alone, a second."""
    be: float
    """be's throughput over that of be alone."""

    @property
    def quiet(self) -> Mask:
        """Return which requests that count stood in a busy period without a stall, on both sides."""
        return ~(_held_up(self.run) | _held_up(self.alone))


def found(folder: RunFolder) -> Iterator[tuple[str, list[Round]]]:
    """Yield each pair's name and rounds under policy orion, time-sliced, beside kernels that are not very long."""
    for hp in folder.hp_ids():
        solos = rates.be_solos(folder, hp)
        for be in folder.be_ids(hp):
            rounds = [each for path in folder.rounds(hp) if (each := _round(folder, path, be, solos)) is not None]
            if rounds:
                yield f"{hp} beside {be}", rounds


def _round(folder: RunFolder, path: Path, be: str, solos: rates.Solos) -> Round | None:
    run, alone = (folder.load(path / name) for name in (f"{be}/orion{SUFFIX}", f"alone{SUFFIX}"))
    closed = folder.load(path / f"hp-closed-loop{SUFFIX}")
    if run is None or alone is None or closed is None or not alone.open_loop:
        return None
    if any(client.facts.get("ms", 0) > 1e3 * LONGEST_KERNEL for client in run.be):
        return None
    shares = rates.be_shares(run, solos)
    be_share = sum(float(share.mean()) for share in shares) if shares else float("nan")
    return Round(alone.round, run, alone, rates.closed_rate(closed), be_share)


def heads(run: Run) -> Mask:
    """Return which of the requests that count found hp idle."""
    gaps = np.asarray(run.starts[1:]) - np.asarray(run.ends[:-1])
    return np.asarray(np.concatenate(([True], gaps > SHORTEST_GAP))[run.first :])


def _held_up(run: Run) -> Mask:
    """Return which requests that count stood in a busy period that a stall touched."""
    period = np.cumsum(heads(run))
    return np.isin(period, period[_excess(run) > STALL])


def _excess(run: Run) -> Samples:
    """Return what each request that counts took longer than the median, from when hp was free to begin it; seconds.

    A server that slept too long begins late: that counts, queueing behind others does not.
    """
    ends = np.asarray(run.ends)
    free = np.maximum(run.arrivals, np.concatenate(([0.0], ends[:-1])))
    return np.asarray((ends - free)[run.first :] - np.median(run.services))


def stalls(folder: RunFolder) -> list[str]:
    """List runs of an open loop time-sliced, alone ones included, with requests that stalled."""
    lines = ["| run | requests | longest, ms above the median | seconds into the run |", "|---|---|---|---|"]
    seen: dict[str, Run] = {}
    for name, rounds in found(folder):
        hp, _, be = name.partition(" beside ")
        for each in rounds:
            seen[f"{hp} alone, round {each.number + 1}"] = each.alone
            seen[f"{hp} beside {be}, round {each.number + 1}"] = each.run
    for name, run in sorted(seen.items(), key=lambda item: -_excess(item[1]).max()):
        late = np.flatnonzero(_excess(run) > STALL)
        if len(late):
            at = [run.starts[run.first + index] for index in (late[0], late[-1])]
            lines.append(f"| {name} | {len(late)} | {1e3 * _excess(run).max():.1f} | {at[0]:.1f} to {at[1]:.1f} |")
    return lines


def tails(pairs: Sequence[tuple[str, list[Round]]]) -> list[str]:
    """Compare hp's p99 with alone: as measured, without stalls, and what queueing makes of alone with late heads."""
    lines = [
        f"| pair | as measured | without busy periods of a stall > {1e3 * STALL:g} ms | "
        f"alone, were its heads {1e3 * SWITCH:g} ms late | late as these were on average |",
        "|---|---|---|---|---|",
    ]
    for name, rounds in pairs:
        measured = [_reported(_of_kept(each, _ratio, quiet) for each in rounds) for quiet in (False, True)]
        modelled = [
            _reported(queued_p99(each.alone, late=SWITCH) for each in rounds),
            _reported(queued_p99(each.alone, late=_late(each)) for each in rounds),
        ]
        lines.append(f"| {name}, p99 / alone | {' | '.join(measured + modelled)} |")
    for name, rounds in pairs:
        if "gemm" in name:
            measured = [_reported(_of_kept(each, _over, quiet) for each in rounds) for quiet in (False, True)]
            lines.append(f"| {name}, p99 - 1.05 x alone, ms | {' | '.join(measured)} | | |")
    return lines


def _ratio(own: Samples, alone: Samples) -> float:
    return percentile(own, 99) / percentile(alone, 99)


def _over(own: Samples, alone: Samples) -> float:
    return 1e3 * (percentile(own, 99) - 1.05 * percentile(alone, 99))


def _of_kept(each: Round, figure: Callable[[Samples, Samples], float], quiet: bool) -> float:
    kept = each.quiet if quiet else np.ones(len(each.run.latencies), dtype=np.bool_)
    if not kept.any():
        return float("nan")
    return figure(each.run.latencies[kept], each.alone.latencies[kept])


def _late(each: Round) -> float:
    """Return how much longer heads took beside be than alone, on average; seconds."""
    own, alone = (_of(run, each.quiet, head=True) for run in (each.run, each.alone))
    return float(own.mean() - alone.mean()) if len(own) and len(alone) else float("nan")


def _reported(rounds: Iterable[float]) -> str:
    values = [value for value in rounds if not np.isnan(value)]
    if not values:
        return "no round left"
    return f"{statistics.median(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"


def waits(pairs: Sequence[tuple[str, list[Round]]]) -> list[str]:
    """Compare service times beside be with alone, by percentile: requests that found hp idle, and the others."""
    titles = [f"{kind} p{rank}" for kind in ("head", "queued") for rank in RANKS]
    lines = [f"| pair, ms more than alone | {' | '.join(titles)} |", f"|{'---|' * (len(titles) + 1)}"]
    for name, rounds in pairs:
        cells = []
        for head in (True, False):
            own = np.concatenate([_of(each.run, each.quiet, head) for each in rounds])
            alone = np.concatenate([_of(each.alone, each.quiet, head) for each in rounds])
            cells += [f"{1e3 * (percentile(own, rank) - percentile(alone, rank)):+.2f}" for rank in RANKS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _of(run: Run, quiet: Mask, head: bool) -> Samples:
    return np.asarray(run.services[quiet & (heads(run) == head)])


def losses(pairs: Sequence[tuple[str, list[Round]]]) -> list[str]:
    """Divide the time that neither side used among hp's busy periods; medians over rounds."""
    lines = [
        "| pair | hp share | be / alone | busy periods/s | nobody's, ms a busy period | of it hp took longer | rest |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rounds in pairs:
        rows = [_loss(each) for each in rounds]
        share, be, periods, lost, longer, rest = (statistics.median(row[column] for row in rows) for column in range(6))
        lines.append(f"| {name} | {share:.3f} | {be:.3f} | {periods:.1f} | {lost:.2f} | {longer:.2f} | {rest:.2f} |")
    return lines


def _loss(each: Round) -> tuple[float, ...]:
    """Return hp's share, be's share, busy periods a second, and the loss a period with its two parts, ms."""
    rate = len(each.alone.latencies) / each.alone.seconds
    share, periods = rate / each.capacity, busy_periods_per_second(each.alone)
    lost = 1e3 * (1 - share - each.be) / periods
    own, alone = (float(run.services[each.quiet].mean()) for run in (each.run, each.alone))
    longer = 1e3 * rate * (own - alone) / periods
    return share, each.be, periods, lost, longer, lost - longer


def queueing(folder: RunFolder) -> list[str]:
    """Compare hp's p99 where contexts run together with what queueing makes of alone, all or only heads slowed."""
    titles = ["hp, round", "system", "hp GPU time / alone", "p99 / alone", "by queueing", "were heads alone late"]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for title, alone, systems in _overlaps(folder):
        for name, run in systems.items():
            slowdown = float(run.services.mean() / alone.services.mean())
            late = float(np.median(run.services[heads(run)]) - np.median(alone.services))
            cells = [name, f"{slowdown:.3f}", f"{_ratio(run.latencies, alone.latencies):.2f}"]
            cells += [f"{queued_p99(alone, slowdown):.2f}", f"{queued_p99(alone, late=late):.2f}"]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        lines += [f"| {title} | | {one:g} | | {queued_p99(alone, one):.2f} | |" for one in SLOWDOWNS]
    return lines


def _overlaps(folder: RunFolder) -> Iterator[tuple[str, Run, dict[str, Run]]]:
    """Yield a title, hp alone, and the systems in which contexts run together, of each round that has both."""
    for hp in folder.hp_ids():
        for path in folder.rounds(hp):
            alone = folder.load(path / f"alone{SUFFIX}")
            paths = sorted(path.glob(f"*/*{SUFFIX}"))
            systems = {one.name.removesuffix(SUFFIX): run for one in paths if (run := _together(folder, one))}
            if alone is not None and systems:
                yield f"{hp}, {alone.round + 1}", alone, systems


def _together(folder: RunFolder, path: Path) -> Run | None:
    """Return a run where contexts run together under the gate, or with an overlap within a budget."""
    run = folder.load(path) if path.parent.name != BE_ALONE else None
    if run is None or not run.open_loop or not run.system_spec.overlap_mode:
        return None
    return run if run.system_spec.max_slowdown or run.system_spec.policy == "gate" else None


def ages(folder: RunFolder, pairs: Sequence[tuple[str, list[Round]]]) -> list[str]:
    """Show service times above alone's median by the request's place in its busy period, medians, and be's steps."""
    lines = [f"| ms above alone | {' | '.join(PLACES)} | be steps a request from the 2nd |"]
    lines.append(f"|{'---|' * (len(PLACES) + 2)}")
    rows = [(name, [(each.run, each.alone) for each in rounds]) for name, rounds in pairs]
    for title, alone, systems in _overlaps(folder):
        rows += [(f"{title}, {name}", [(run, alone)]) for name, run in systems.items()]
    for name, runs in rows:
        above = np.concatenate([run.services - np.median(alone.services) for run, alone in runs])
        places = np.concatenate([_places(run) for run, _ in runs])
        chosen = [above[(places >= first) & (places <= last)] for first, last in PLACES.values()]
        cells = [f"{1e3 * np.median(one):+.2f}" if len(one) else "-" for one in chosen]
        steps = np.concatenate([_be_steps(run) for run, _ in runs])[places > 0]
        lines.append(f"| {name} | {' | '.join(cells)} | {steps.mean() if len(steps) else 0:.2f} |")
    return lines


def _places(run: Run) -> NDArray[np.int_]:
    """Return each counting request's index in its busy period; the head's is 0."""
    numbers = np.arange(len(run.services))
    return np.asarray(numbers - np.maximum.accumulate(np.where(heads(run), numbers, 0)))


def _be_steps(run: Run) -> Samples:
    """Return how many steps of be ended while each request that counts was served."""
    ends = np.sort(np.concatenate([client.ends for client in run.be])) if run.be else np.empty(0)
    begun, done = (np.searchsorted(ends, times[run.first :]) for times in (run.starts, run.ends))
    return np.asarray(done - begun, dtype=np.float64)


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = OneSentenceParser(prog="orion.bench.busy_periods", description="The head of hp's busy periods.")
    parser.add_argument("folder", type=Path, help="of a colocation; `orion bench report FILE.tgz --output` unpacks one")
    root = parser.parse_args(arguments).folder
    folder = RunFolder(root)
    if not (pairs := list(found(folder))):
        print(f"{parser.prog}: {root} holds no runs of policy orion by turns with hp alone beside", file=sys.stderr)
        return 1
    for title, lines in (
        ("Stalls", stalls(folder)),
        ("hp's tail", tails(pairs)),
        ("Service times", waits(pairs)),
        ("be's loss", losses(pairs)),
        ("Overlap", queueing(folder)),
        ("Age of the busy period", ages(folder, pairs)),
    ):
        print("\n".join([f"## {title}", "", *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
