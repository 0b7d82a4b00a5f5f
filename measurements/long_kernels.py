"""Makes tables of what measurements/probes/long_kernels.c printed.

    python -m measurements.long_kernels docs/results/raw/long_kernels.jsonl.gz

A figure is the median over all requests of the rounds. "first" is the time from a request's begin to the begin of its
first kernel. be's figure is its kernels per second.
"""

import argparse
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

Row = dict[str, Any]


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(columns)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _grouped(rows: Iterable[Row], keys: tuple[str, ...]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def _pooled(rows: list[Row], name: str) -> list[float]:
    return [value for row in rows for value in row[name]]


def _median_us(rows: list[Row], name: str) -> str:
    return f"{median(_pooled(rows, name)):.0f}"


def _p90_us(rows: list[Row], name: str) -> str:
    return f"{quantiles(_pooled(rows, name), n=10)[8]:.0f}"


def _be_rate(rows: list[Row]) -> str:
    return f"{sum(row['be_kernels'] for row in rows) / sum(row['seconds'] for row in rows):.1f}"


def _beside(us: int, gated: bool) -> str:
    return f"{us / 1000:g} ms, {'gate' if gated else 'unmanaged'}" if us else "nothing"


def _criteria(rows: list[Row]) -> str:
    found = []
    for row in rows:
        if row.get("what") != "criterion":
            continue
        if row.get("compute_groups") == 0:
            reason = "no channel group of this process was seen"
        elif "work_beside_gated_load" in row:
            reason = f"hp's kernels take {row['work_beside_gated_load']:.3f} x alone beside the gated load"
        else:
            reason = f"setting a time slice returned status {row.get('status')}"
        found.append(f"* {row['section']}: {reason}; {'goes on' if row['goes_on'] else 'ended'}.")
    return "\n".join(found) + "\n"


def _by_round(found: list[Row], rows: list[Row], keys: tuple[str, ...], plain: Row) -> str:
    """Return each round's p50, divided by the p50 of the same round with the settings `plain`."""
    ratios = []
    for row in found:
        wanted = {key: row[key] for key in (*keys, "be_us", "gated", "round")} | plain
        base = next((one for one in rows if wanted.items() <= one.items()), None)
        ratios.append(f"{median(row['took_us']) / median(base['took_us']):.2f}" if base else "-")
    return ", ".join(ratios)


def _requests(rows: list[Row], titles: dict[str, str], plain: Row) -> str:
    lines, keys = [], tuple(titles)
    for group, found in _grouped(rows, (*keys, "be_us", "gated")).items():
        figures = [
            _median_us(found, "first_us"),
            _median_us(found, "took_us"),
            _p90_us(found, "took_us"),
            _by_round(found, rows, keys, plain),
            _be_rate(found),
        ]
        lines.append([*(str(value) for value in group[:-2]), _beside(*group[-2:]), *figures])
    columns = ["be", "first, us", "p50, us", "p90, us", "p50 / that without the change, by round", "be /s"]
    return _table([*titles.values(), *columns], lines)


def _slices(rows: list[Row]) -> str:
    for row in rows:
        row.setdefault("be_reaction", "nothing")
    titles = {"slices": "slices, us", "be_reaction": "be at hp's arrival"}
    return _requests(rows, titles, {"slices": "CUDA's", "be_reaction": "nothing"})


def _copies(rows: list[Row]) -> str:
    return _requests(rows, {"copy": "copy, bytes", "early": "launched first"}, {"early": "nothing"})


def _alone(rows: list[Row]) -> str:
    return _table(
        ("be's slice, us", "be /s beside an idle hp"),
        ([str(row["slice_us"] or "CUDA's"), f"{row['kernels_per_s']:.1f}"] for row in rows),
    )


def _clock(rows: list[Row]) -> str:
    lines = []
    for (be, us, gated, sms), found in _grouped(rows, ("be", "be_us", "gated", "sms")).items():
        clocks = [median(values) for values in zip(*(row["mhz_of_kernel"] for row in found), strict=True)]
        beside = be if not us else f"{be}, {_beside(us, gated)}"
        figures = [_median_us(found, "work_us"), _median_us(found, "took_us"), _be_rate(found)]
        lines.append([beside, str(sms or "all"), *figures, " ".join(f"{clock:.0f}" for clock in clocks)])
    return _table(
        ("be", "SMs of be", "hp's kernels, us", "hp p50, us", "be /s", "MHz, from hp's first kernel to its last"), lines
    )


def report(rows: list[Row]) -> str:
    """Return the tables in Markdown."""
    clocks = [row for row in rows if "mhz_of_kernel" in row]
    copies = [row for row in rows if "copy" in row]
    slices = [row for row in rows if "slices" in row]
    alone = [row for row in rows if row.get("what") == "be beside an idle hp"]
    parts = {"Criteria": _criteria(rows)}
    if slices:
        parts["Time slices and preemption"] = _slices(slices)
    if alone:
        parts["Short slices beside an idle hp"] = _alone(alone)
    if copies:
        parts["A kernel before the copy"] = _copies(copies)
    if clocks:
        parts["Clock"] = _clock(clocks)
    return "\n".join(f"## {title}\n\n{text}" for title, text in parts.items())


def main() -> None:
    """Print the tables of the file on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="lines of JSON, or these compressed by gzip")
    data = parser.parse_args().file.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    print(report([json.loads(line) for line in text.decode().splitlines() if line.startswith("{")]))


if __name__ == "__main__":
    main()
