"""The options of `orion demo`; orion.bench.demo runs the experiment."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    seconds: Annotated[float, typer.Option(help="Seconds for each measured phase.")] = 6.0,
    rate: Annotated[float | None, typer.Option(help="hp requests per second.", show_default="34 % of the GPU")] = None,
    seed: Annotated[
        int, typer.Option(help="The seed of the arrival times; the same seed gives the same arrivals.")
    ] = 1,
    output: Annotated[Path, typer.Option(help="The file for the picture of the timeline.")] = Path("orion-demo.png"),
    simulated: Annotated[
        bool | None,
        typer.Option(
            "--simulated/--gpu", help="Use the simulated GPU, or a real one.", show_default="a real one if possible"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> int:
    """Run a request server and a trainer on one GPU: alone, unmanaged and under Orion."""
    from orion.bench.demo import Options, run_demo

    return run_demo(Options(seconds, rate, seed, output, simulated, as_json))
