"""Throughput from run files: solo rates as denominators, normalised rates, and the speeds that the ceiling is fed with.

Rates are counted in the run's own window, the steps across its edges by their part inside.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orion.bench.colocation.ceiling import Speeds
from orion.bench.colocation.run_files import SUFFIX, BestEffort, Run, RunFolder
from orion.bench.estimates import Samples
from orion.bench.samples import binned_rates, completed_between

BIN_SECONDS = 0.5
CLOSED_OVERLAP = re.compile(r"(threads-)?closed-overlap-(.+)")
"""Names of runs in which neither hp nor be ever waits for work: the mode, and the system that overlaps them."""
Solos = dict[tuple[int, str], "Solo"]
"""What be does alone, by round and likeness of its workload."""


@dataclass(frozen=True)
class Solo:
    """A closed loop that has the GPU to itself."""

    rate: float
    """Units a second."""
    bins: Samples
    """The same in each part of the window."""
    clients: int
    """Processes that worked; one, if there is the choice."""


def closed_rate(run: Run) -> float:
    """Return hp's iterations or requests a second, in a closed loop."""
    return completed_between(run.ends, *run.window) / run.seconds


def hp_bins(run: Run) -> Samples:
    """Return hp's completed requests a second in each part of the window, a request spread over its service time."""
    if not run.open_loop:
        return np.asarray(binned_rates(run.ends, *run.window, _bins(run)))
    edges = np.linspace(*run.window, _bins(run) + 1)
    starts, ends = np.asarray(run.starts), np.asarray(run.ends)
    inside = np.minimum(ends, edges[1:, None]) - np.maximum(starts, edges[:-1, None])
    done = np.maximum(0.0, inside) / np.maximum(ends - starts, 1e-9)
    return np.asarray(done.sum(axis=1) / np.diff(edges))


def be_bins(run: Run, client: BestEffort) -> Samples:
    """Return a be client's units a second in each part of the window."""
    return np.asarray(binned_rates(client.ends, *run.window, _bins(run))) * client.amount


def be_solos(folder: RunFolder, hp: str) -> Solos:
    """Read what be does alone in the rounds of an hp."""
    found: Solos = {}
    for path in folder.be_alone(hp):
        run = folder.load(path)
        if run is None or len({client.likeness for client in run.be}) != 1:
            continue
        bins = np.asarray([be_bins(run, client) for client in run.be]).sum(axis=0)
        key, rate = (run.round, run.be[0].likeness), float(bins.mean())
        if rate <= 0:
            name = str(path.relative_to(folder.root))
            folder.failures[name] = f"{name.removesuffix(SUFFIX)}: be completed less than two steps alone"
        elif key not in found or len(run.be) < found[key].clients:
            found[key] = Solo(rate, bins, len(run.be))
    return found


def be_shares(run: Run, solos: Solos) -> list[Samples] | None:
    """Return each client's throughput over that of its workload alone in the same round, in each part of the window."""
    pairs = [(client, solos.get((run.round, client.likeness))) for client in run.be]
    shares = [be_bins(run, client) / solo.rate for client, solo in pairs if solo is not None]
    return shares if shares and len(shares) == len(run.be) else None


def be_reference(run: Run, solos: Solos) -> Samples | None:
    """Return what 1 means for the sum of `be_shares`: the clients' workloads alone, over their means, by parts."""
    found = [solo.bins for client in run.be if (solo := solos.get((run.round, client.likeness))) is not None]
    if not found or len(found) < len(run.be):
        return None
    common = min(len(bins) for bins in found)
    return np.asarray(np.mean([bins[:common] / bins[:common].mean() for bins in found], axis=0))


def speeds(
    folder: RunFolder, round_folder: Path, be: str, capacity: float, solos: Solos
) -> dict[str, dict[str, Speeds]]:
    """Find the speeds that a pair's ceiling is made from, in the closed loops that an experiment with a ceiling has.

    Where hp alone in a mode was not measured, the mode is taken to cost nothing, which can only make the ceiling too
    high.

    Args:
        folder: The output folder.
        round_folder: Of one round of one hp.
        be: Name of what ran beside it.
        capacity: hp's closed-loop rate alone in this round.
        solos: What be does alone.

    Returns:
        By mode, and in it by the system that overlapped them. Empty where such runs were not made.
    """
    found: dict[str, dict[str, Speeds]] = {}
    for path in sorted((round_folder / be).glob(f"*{SUFFIX}")):
        matched = CLOSED_OVERLAP.fullmatch(path.name.removesuffix(SUFFIX))
        run = folder.load(path) if matched else None
        shares = be_shares(run, solos) if run is not None else None
        if matched is None or run is None or shares is None:
            continue
        mode = "threads" if matched[1] else "mps"
        idle = folder.load(round_folder / f"{mode}-closed-loop{SUFFIX}")
        alone = closed_rate(idle) / capacity if idle is not None else 1.0
        overlapped = closed_rate(run) / capacity
        if alone > 0 and overlapped > 0:
            beside = float(sum(share.mean() for share in shares))
            found.setdefault(mode, {})[matched[2]] = Speeds(alone, overlapped, beside)
    return found


def _bins(run: Run) -> int:
    return max(1, round(run.seconds / BIN_SECONDS))
