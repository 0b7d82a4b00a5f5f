"""Explains hp's latency beside be, from the raw data of a colocation: `python -m orion.bench.busy_periods FOLDER`.

It prints six Markdown tables for docs/results/colocation.md. The "head" is the first request of a busy period. The
queueing model (late_heads.py) takes the run of hp alone and predicts what hp's p99 would be if some of the requests
took longer.

1. Time-sliced runs: stalls, which are requests that took longer than be's kernels can explain. Runs of hp alone have
   stalls, too, so the host causes them.
2. Time-sliced runs: hp's p99 with and without stalls, and the predicted p99 if only the heads take longer.
3. Time-sliced runs: the extra service time of heads and of queued requests.
4. Time-sliced runs: the GPU time that is lost in each busy period.
5. Runs in which contexts run together: hp's p99, and its predictions if all requests take longer, or only heads do.
6. All runs: the slowdown by position in the busy period. If a request is slow long after be's last kernel, be is not
   the cause.

`orion bench report` does not print these tables: the report says whether targets hold; these tables say why.
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

STALL = 4e-3  # seconds above a run's median service time; no be kernel of these loads makes hp wait that long
SWITCH = 0.14e-3  # seconds that a context switch to hp takes; docs/results/context-switch.md
LONGEST_KERNEL = 10e-3  # seconds; beside longer kernels, a stall looks the same as a wait for a kernel
RANKS = (10, 50, 90, 99)
SLOWDOWNS = (1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
POSITIONS = {"head": (0, 0), "2nd": (1, 1), "3rd": (2, 2), "4th": (3, 3), "6th to 8th": (5, 7), "later": (8, 10**9)}
"""Ranges of positions in a busy period: first and last index."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Round:
    """hp beside be under policy orion in one round, and the references of the round."""

    number: int
    run: Run
    alone: Run
    capacity: float
    """hp's closed-loop rate when it runs alone, requests a second."""
    be: float
    """be's throughput, as a share of be's throughput alone."""

    @property
    def quiet(self) -> Mask:
        """Return which measured requests were in a busy period without a stall, both beside be and alone."""
        return ~(_in_stalled_period(self.run) | _in_stalled_period(self.alone))


def rounds_by_pair(folder: RunFolder) -> Iterator[tuple[str, list[Round]]]:
    """Yield each pair's name and its time-sliced rounds under policy orion, with be kernels up to `LONGEST_KERNEL`."""
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
    """Return which of the measured requests arrived while hp was idle."""
    gaps = np.asarray(run.starts[1:]) - np.asarray(run.ends[:-1])
    return np.asarray(np.concatenate(([True], gaps > SHORTEST_GAP))[run.first :])


def _in_stalled_period(run: Run) -> Mask:
    """Return which measured requests were in a busy period that had a stall."""
    period = np.cumsum(heads(run))
    return np.isin(period, period[_excess(run) > STALL])


def _excess(run: Run) -> Samples:
    """Return by how many seconds each measured request took longer than the median service time.

    A request's time starts when it has arrived and the request before it has ended. So the time includes a late wake-up
    of the server, but not the wait behind earlier requests.
    """
    ends = np.asarray(run.ends)
    free = np.maximum(run.arrivals, np.concatenate(([0.0], ends[:-1])))
    return np.asarray((ends - free)[run.first :] - np.median(run.services))


def stalls(folder: RunFolder) -> list[str]:
    """List the runs that had stalled requests: time-sliced runs of hp beside be, and runs of hp alone."""
    lines = ["| run | requests | longest, ms above the median | seconds into the run |", "|---|---|---|---|"]
    seen: dict[str, Run] = {}
    for name, rounds in rounds_by_pair(folder):
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
    """Divide hp's p99 beside be by hp's p99 alone: as measured, without stalls, and as predicted if heads are late."""
    lines = [
        f"| pair | as measured | without busy periods of a stall > {1e3 * STALL:g} ms | "
        f"alone, if its heads were {1e3 * SWITCH:g} ms late | alone, if its heads were as late as measured |",
        "|---|---|---|---|---|",
    ]
    for name, rounds in pairs:
        measured = [_cell(_of_kept(each, _ratio, quiet) for each in rounds) for quiet in (False, True)]
        modelled = [
            _cell(queued_p99(each.alone, late=SWITCH) for each in rounds),
            _cell(queued_p99(each.alone, late=_late(each)) for each in rounds),
        ]
        lines.append(f"| {name}, p99 / alone | {' | '.join(measured + modelled)} |")
    for name, rounds in pairs:
        if "gemm" in name:
            measured = [_cell(_of_kept(each, _over, quiet) for each in rounds) for quiet in (False, True)]
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
    """Return by how many seconds a head takes longer beside be than alone, on average."""
    own, alone = (_of(run, each.quiet, head=True) for run in (each.run, each.alone))
    return float(own.mean() - alone.mean()) if len(own) and len(alone) else float("nan")


def _cell(rounds: Iterable[float]) -> str:
    values = [value for value in rounds if not np.isnan(value)]
    if not values:
        return "no round left"
    return f"{statistics.median(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"


def waits(pairs: Sequence[tuple[str, list[Round]]]) -> list[str]:
    """Subtract percentiles of hp's service time alone from those beside be, for heads and for queued requests."""
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
    """Show the GPU time that neither side used, per busy period of hp; medians over rounds."""
    lines = [
        "| pair | hp share | be / alone | busy periods/s | unused, ms a busy period | hp took longer, ms | rest, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rounds in pairs:
        rows = [_loss(each) for each in rounds]
        share, be, periods, lost, longer, rest = (statistics.median(row[column] for row in rows) for column in range(6))
        lines.append(f"| {name} | {share:.3f} | {be:.3f} | {periods:.1f} | {lost:.2f} | {longer:.2f} | {rest:.2f} |")
    return lines


def _loss(each: Round) -> tuple[float, ...]:
    """Return hp's share, be's share, busy periods a second, and the GPU time lost per busy period, in ms.

    The lost time is three figures: the sum, the part in which hp took longer than alone, and the rest.
    """
    rate = len(each.alone.latencies) / each.alone.seconds
    share, periods = rate / each.capacity, busy_periods_per_second(each.alone)
    lost = 1e3 * (1 - share - each.be) / periods
    own, alone = (float(run.services[each.quiet].mean()) for run in (each.run, each.alone))
    longer = 1e3 * rate * (own - alone) / periods
    return share, each.be, periods, lost, longer, lost - longer


def queueing(folder: RunFolder) -> list[str]:
    """Compare hp's p99 with two predictions, for runs in which contexts run together.

    One prediction assumes that all requests take longer. The other assumes that only the heads take longer.
    """
    titles = ["hp, round", "system", "hp GPU time / alone", "p99 / alone", "by queueing", "if only heads were late"]
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
    """Yield a title, the run of hp alone, and the runs in which contexts run together.

    A round without hp alone or without such runs is left out.
    """
    for hp in folder.hp_ids():
        for path in folder.rounds(hp):
            alone = folder.load(path / f"alone{SUFFIX}")
            paths = sorted(path.glob(f"*/*{SUFFIX}"))
            systems = {one.name.removesuffix(SUFFIX): run for one in paths if (run := _together(folder, one))}
            if alone is not None and systems:
                yield f"{hp}, {alone.round + 1}", alone, systems


def _together(folder: RunFolder, path: Path) -> Run | None:
    """Return the run if contexts run together in it, under policy gate or with an overlap budget; else None."""
    run = folder.load(path) if path.parent.name != BE_ALONE else None
    if run is None or not run.open_loop or not run.system_spec.overlap_mode:
        return None
    return run if run.system_spec.max_slowdown or run.system_spec.policy == "gate" else None


def ages(folder: RunFolder, pairs: Sequence[tuple[str, list[Round]]]) -> list[str]:
    """Show by how much the median service time exceeds that of hp alone, for each position in the busy period.

    The last column is the mean number of be steps that end during a request, without the heads.
    """
    lines = [f"| ms above alone | {' | '.join(POSITIONS)} | be steps a request from the 2nd |"]
    lines.append(f"|{'---|' * (len(POSITIONS) + 2)}")
    rows = [(name, [(each.run, each.alone) for each in rounds]) for name, rounds in pairs]
    for title, alone, systems in _overlaps(folder):
        rows += [(f"{title}, {name}", [(run, alone)]) for name, run in systems.items()]
    for name, runs in rows:
        above = np.concatenate([run.services - np.median(alone.services) for run, alone in runs])
        positions = np.concatenate([_positions(run) for run, _ in runs])
        chosen = [above[(positions >= first) & (positions <= last)] for first, last in POSITIONS.values()]
        cells = [f"{1e3 * np.median(one):+.2f}" if len(one) else "-" for one in chosen]
        steps = np.concatenate([_be_steps(run) for run, _ in runs])[positions > 0]
        lines.append(f"| {name} | {' | '.join(cells)} | {steps.mean() if len(steps) else 0:.2f} |")
    return lines


def _positions(run: Run) -> NDArray[np.int_]:
    """Return the index of each measured request in its busy period; the head has index 0."""
    numbers = np.arange(len(run.services))
    return np.asarray(numbers - np.maximum.accumulate(np.where(heads(run), numbers, 0)))


def _be_steps(run: Run) -> Samples:
    """Return how many steps of be ended while each measured request was served."""
    ends = np.sort(np.concatenate([client.ends for client in run.be])) if run.be else np.empty(0)
    begun, done = (np.searchsorted(ends, times[run.first :]) for times in (run.starts, run.ends))
    return np.asarray(done - begun, dtype=np.float64)


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = OneSentenceParser(
        prog="orion.bench.busy_periods", description="Explains hp's latency by its busy periods."
    )
    parser.add_argument(
        "folder", type=Path, help="folder of a colocation; `orion bench report FILE.tgz --output FOLDER` unpacks one"
    )
    root = parser.parse_args(arguments).folder
    folder = RunFolder(root)
    if not (pairs := list(rounds_by_pair(folder))):
        print(
            f"{parser.prog}: {root} has no time-sliced runs of policy orion together with runs of hp alone; "
            "give a colocation's folder that has both",
            file=sys.stderr,
        )
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
