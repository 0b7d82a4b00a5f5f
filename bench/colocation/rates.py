"""Computes throughput from run files: rates alone, rates relative to alone, and the speeds for the ceiling's model.

Rates count the steps in the run's window. A step that crosses an edge counts by its fraction in the window.
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
"""Matches names of runs with hp and be in closed loops; the groups are the mode and the overlapping system."""
Solos = dict[tuple[int, str], "Solo"]
"""be's throughput alone, by round and `Workload.work_key`."""


@dataclass(frozen=True)
class Solo:
    """The throughput of a be workload alone, in a closed loop."""

    rate: float
    """Units a second."""
    bins: Samples
    """The rate in each part of the window."""
    clients: int
    """Number of processes; if there are several measurements, the one with the fewest processes counts."""


def closed_rate(run: Run) -> float:
    """Return hp's iterations or requests a second, in a closed loop."""
    return completed_between(run.ends, *run.window) / run.seconds


def hp_bins(run: Run) -> Samples:
    """Return hp's requests a second in each part of the window; a request is spread over its service time."""
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
    """Read be's throughput alone, in the rounds of an hp."""
    found: Solos = {}
    for path in folder.be_alone(hp):
        run = folder.load(path)
        if run is None or len({client.work_key for client in run.be}) != 1:
            continue
        bins = np.asarray([be_bins(run, client) for client in run.be]).sum(axis=0)
        key, rate = (run.round, run.be[0].work_key), float(bins.mean())
        if rate <= 0:
            name = str(path.relative_to(folder.root))
            folder.failures[name] = f"{name.removesuffix(SUFFIX)}: be alone completed fewer than two steps"
        elif key not in found or len(run.be) < found[key].clients:
            found[key] = Solo(rate, bins, len(run.be))
    return found


def be_shares(run: Run, solos: Solos) -> list[Samples] | None:
    """Return each client's throughput in each part of the window, divided by that of its workload alone."""
    pairs = [(client, solos.get((run.round, client.work_key))) for client in run.be]
    shares = [be_bins(run, client) / solo.rate for client, solo in pairs if solo is not None]
    return shares if shares and len(shares) == len(run.be) else None


def be_reference(run: Run, solos: Solos) -> Samples | None:
    """Return the reference for the sum of `be_shares`: be's throughput alone by parts, divided by its mean."""
    found = [solo.bins for client in run.be if (solo := solos.get((run.round, client.work_key))) is not None]
    if not found or len(found) < len(run.be):
        return None
    common = min(len(bins) for bins in found)
    return np.asarray(np.mean([bins[:common] / bins[:common].mean() for bins in found], axis=0))


def speeds(
    folder: RunFolder, round_folder: Path, be: str, capacity: float, solos: Solos
) -> dict[str, dict[str, Speeds]]:
    """Return the speeds for a pair's ceiling, from the closed loops that an experiment with a ceiling has.

    If hp alone in a mode was not measured, the function assumes a speed of 1, which can only make the ceiling too high.

    Args:
        folder: The output folder.
        round_folder: Folder of one round of one hp.
        be: Name of the be entry beside hp.
        capacity: hp's closed-loop rate alone in this round.
        solos: be's throughput alone.

    Returns:
        Speeds by mode, then by the overlapping system. Empty if there are no such runs.
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
