"""`orion demo`: the options; the experiment itself lives in orion.bench.demo."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    seconds: Annotated[float, typer.Option(help="Length of each phase that counts, in seconds.")] = 6.0,
    rate: Annotated[float | None, typer.Option(help="hp requests a second.", show_default="34 % of the GPU")] = None,
    seed: Annotated[int, typer.Option(help="Of the arrival times; the same seed gives the same arrivals.")] = 1,
    output: Annotated[Path, typer.Option(help="Where the picture of the timeline goes.")] = Path("orion-demo.png"),
    simulated: Annotated[
        bool | None,
        typer.Option(
            "--simulated/--gpu", help="The simulated GPU, or a real one.", show_default="a real one if it can"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> int:
    """See it work: a request server and a trainer on one GPU, alone, unmanaged and under Orion."""
    from orion.bench.demo import Options, run_demo

    return run_demo(Options(seconds, rate, seed, output, simulated, as_json))
