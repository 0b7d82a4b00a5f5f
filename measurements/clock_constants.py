"""Computes the constants of orion.simulation.gpu.h200 from the raw data of the probe work_alone.py.

    python -m measurements.clock_constants docs/results/raw/work-alone.json.gz

For each workload: power while busy; for training, quantiles of the remaining time of the kernel that runs at a random
moment. For the clock: the constants with which the model of orion.simulation.gpu.clock comes closest to the `turns` of
products and requests, by steps of one constant at a time. Then for each workload: its sensitivity, which says how much
longer its work takes for each percent that a matrix product takes longer.
"""

import argparse
import gzip
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orion.simulation.gpu.clock import Clock
from orion.simulation.gpu.costs import Figure, PowerControl

LIMIT_W, IDLE_W = 700.0, 127.0
WINDOW_US = 75.0  # the hook's narrowest window: work up to this length counts as one piece
RANKS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
NAMES = ("product power / limit", "exponent", "memory ms", "gain per ms", "rise per ms", "drop per ms")
START = (1.4, 2.5, 25.0, 0.01, 0.003, 0.003)
EDGES_MS = (0, 5, 10, 20, 30, 40, 60, 80, 100, 150, 210, 310)
CYCLES_MS = 400.0  # the model's time for each setting of turns; it begins at full clock, as the GPU after a rest
Samples = NDArray[np.float64]


def rests(kernels: list[list[float]]) -> list[float]:
    """Return quantiles, in us, of the remaining time of the piece of work that runs at a random moment."""
    pieces, open_us = [], 0.0
    for _, length in sorted(kernels):
        if open_us and open_us + length > WINDOW_US:
            pieces.append(open_us)
            open_us = 0.0
        open_us += length
    lengths = np.asarray([*pieces, open_us])
    rest = np.linspace(0, lengths.max(), 5000)
    longer = np.asarray([np.maximum(0, lengths - each).sum() for each in rest]) / lengths.sum()
    return [float(np.interp(1 - rank, longer[::-1], rest[::-1])) for rank in RANKS]


def power(work: dict[str, Any]) -> float:
    """Return the mean power in W, a second after the begin and later."""
    return float(np.mean([watts for second, watts, _ in work["alone"]["samples"] if second > 1])) / 1e3


def by_age(rows: list[list[float]], base: float) -> Samples:
    """Return by how much steps are slower than `base`, by their begin in the turn; NaN where there is no step."""
    ages = np.concatenate([np.cumsum([0.0, *row[:-1]]) for row in rows])
    times = np.concatenate(rows)
    chosen = [times[(ages >= low) & (ages < high)] for low, high in itertools.pairwise(EDGES_MS)]
    return np.asarray([each.mean() / base - 1 if len(each) else np.nan for each in chosen])


def modelled(constants: tuple[float, ...], hp_power: float, on: float, off: float) -> tuple[Samples, Samples]:
    """Return the same two rows for the model: slowness of products and of requests, in the last cycle."""
    product, exponent, memory, gain, rise, drop = constants
    figures = [Figure(each, "") for each in (LIMIT_W, IDLE_W, memory, exponent, gain, rise, drop)]
    clock = Clock(PowerControl(*figures))
    cycles = max(2, round(CYCLES_MS / (on + off)))
    for _ in range(cycles):
        rows = []
        for span, watts in ((on, product), (off, hp_power)):
            speeds = [1 / clock.speed - 1 for _ in range(int(span)) if clock.run(1.0, watts)]
            rows.append(by_age([[1.0 + each for each in speeds]], 1.0))
    return rows[0], rows[1]


def error(constants: tuple[float, ...], seen: list[tuple[Any, ...]]) -> tuple[float, dict[int, float]]:
    """Return the sum of squared differences, and each workload's sensitivity."""
    total, rows = 0.0, []
    for number, watts, on, off, products, requests in seen:
        product, request = modelled(constants, watts, on, off)
        known = ~np.isnan(product) & ~np.isnan(products)
        total += float(((product - products)[known] ** 2).mean())
        known = ~np.isnan(request) & ~np.isnan(requests)
        rows.append((number, request[known], requests[known]))
    sensitivities = {}
    for number in dict.fromkeys(row[0] for row in rows):
        model, real = (np.concatenate([row[side] for row in rows if row[0] == number]) for side in (1, 2))
        sensitivities[number] = float((model * real).sum() / max((model**2).sum(), 1e-12))
        total += float(((sensitivities[number] * model - real) ** 2).mean())
    return total, sensitivities


def observed(works: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return (workload, power / limit, on ms, off ms, slowness of products, of requests) for each setting of turns."""
    seen = []
    for number, work in enumerate(works):
        if "turns" not in work:
            continue
        longest = work["turns"][0][3]
        full = min(np.median([row[0][index] for row in longest]) for index in range(3, 12))
        rested = float(np.median([time for row in longest for time in row[1][-3:]]))
        for _, _, _, rows in work["turns"]:
            kept = rows[2:]
            on, off = (float(np.mean([sum(row[side]) for row in kept])) for side in (0, 1))
            slow = by_age([row[0] for row in kept], full), by_age([row[1] for row in kept], rested)
            seen.append((number, power(work) / LIMIT_W, on, off, *slow))
    return seen


def fitted(seen: list[tuple[Any, ...]]) -> tuple[float, ...]:
    """Return the constants with the smallest error."""
    best: tuple[float, ...] = START
    factor = 1.3
    least = error(best, seen)[0]
    while factor > 1.02:
        tried = [
            (*best[:index], best[index] * scale, *best[index + 1 :])
            for index in range(len(best))
            for scale in (factor, 1 / factor)
        ]
        errors = [error(each, seen)[0] for each in tried]
        if min(errors) < least:
            least, best = min(errors), tried[errors.index(min(errors))]
        else:
            factor = factor**0.5
    return best


def main(arguments: list[str] | None = None) -> int:
    """Print the constants."""
    parser = argparse.ArgumentParser(description="Computes the constants of the model of a shared GPU.")
    parser.add_argument("file", type=Path, help="the output of measurements/probes/work_alone.py")
    raw = json.loads(gzip.decompress(parser.parse_args(arguments).file.read_bytes()))
    print(raw["gpu"], raw["driver"])
    seen = observed(raw["work"])
    constants = fitted(seen)
    total, sensitivities = error(constants, seen)
    for number, work in enumerate(raw["work"]):
        print(f"{work['work']} {work['options']}: {power(work):.0f} W", end="")
        print(f", sensitivity {sensitivities[number]:.2f}" if number in sensitivities else "")
        if work["work"].endswith("training"):
            pairs = zip(RANKS, rests(work["kernels"]), strict=True)
            print("   rest, us:", ", ".join(f"{rank:g}: {rest:.0f}" for rank, rest in pairs))
    figures = ", ".join(f"{name} {value:.3g}" for name, value in zip(NAMES, constants, strict=True))
    print(f"{figures} (error {total:.4f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
