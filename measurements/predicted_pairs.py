"""Draws predicted against measured figures of pairs, for docs/results/planning.md.

    orion simulate validate docs/results/raw/essentials.tgz --json > essentials.json
    python -m measurements.predicted_pairs essentials.json [..] --output predicted.svg

Each point is a pair. The band is 10 % of the measured value.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

PANELS = {"be": "be / be alone", "hp_p50": "hp p50, ms", "hp_p99": "hp p99, ms"}
KINDS = {
    "beside training": ("#1b6ca8", "o", ("resnet50-training", "bert-training")),
    "beside matrix products": ("#c0392b", "s", ("gemm",)),
    "beside 50 ms kernels": ("#7f8c8d", "^", ("long-kernel",)),
}


def draw(pairs: list[dict[str, Any]], output: Path) -> None:
    """Draw one panel for each figure; each point is a pair."""
    figure, panels = plt.subplots(1, len(PANELS), figsize=(11, 3.9))
    for panel, (name, title) in zip(panels, PANELS.items(), strict=True):
        for label, (colour, marker, names) in KINDS.items():
            chosen = [pair for pair in pairs if pair["be"].startswith(names)]
            measured, predicted = ([pair[side][name] for pair in chosen] for side in ("measured", "predicted"))
            panel.scatter(measured, predicted, s=22, color=colour, marker=marker, alpha=0.75, label=label)
        values = [pair[side][name] for pair in pairs for side in ("measured", "predicted")]
        ends = (0.3, 1.02) if name == "be" else (min(values) / 1.3, max(values) * 1.3)
        panel.plot(ends, ends, color="black", linewidth=0.8)
        low, high = ([part * end for end in ends] for part in (0.9, 1.1))
        panel.fill_between(ends, low, high, color="#00000012", linewidth=0)
        if name != "be":
            panel.set(xscale="log", yscale="log")
        panel.set(xlim=ends, ylim=ends, xlabel="measured", ylabel="predicted", title=title)
    panels[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(output, metadata={"Date": None})


def main(arguments: list[str] | None = None) -> int:
    """Read the reports, and draw the pairs that have a prediction and a measurement."""
    parser = argparse.ArgumentParser(description="Draws predicted against measured figures.")
    parser.add_argument("reports", nargs="+", type=Path, help="outputs of `orion simulate validate --json`")
    parser.add_argument("--output", required=True, type=Path, help="the SVG to write")
    given = parser.parse_args(arguments)
    mpl.rcParams["svg.hashsalt"] = "orion"
    pairs = [pair for report in given.reports for pair in json.loads(report.read_text())["pairs"]]
    draw([pair for pair in pairs if pair["predicted"] and pair["measured"]], given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
