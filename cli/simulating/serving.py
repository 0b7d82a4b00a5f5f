"""`orion simulate serving`: plans for services, and the latencies of their requests.

The command has two forms. A scenario file goes to serving_scenario, a file of cases goes to serving_cases.
"""

from pathlib import Path
from typing import Annotated

import typer

from orion.errors import Invalid


def serving(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="[SCENARIO.yaml]", help="Services, GPUs and arrivals to simulate.")
    ] = None,
    planner: Annotated[
        str, typer.Option(metavar="NAME", help="orion, glet, greedy, temporal or full-search.")
    ] = "orion",
    running: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Scenario: plan from the plan of this file (--json output), and move little."
        ),
    ] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Scenario: a line for each request.")] = None,
    cases: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plan each line (model:rate:objective_ms ..) instead.")
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(metavar="TABLE.csv", help="Cases: model,share,batch,latency_ms.")
    ] = None,
    facts: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Cases: overheads and memory.")] = None,
    interference: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Cases: model,batch,l2,dram of neighbours.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", min=1, help="Cases: the GPUs of each case.")] = None,
    parts_per_gpu: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Cases: the most parts on a GPU.")
    ] = None,
    part_sizes: Annotated[
        str | None, typer.Option(metavar="P,P,..", help="Cases: shares that a part may have, in percent.")
    ] = None,
    confirm: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Cases: simulate each plan for this time; 0: do not.")
    ] = 0,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="Cases: the number of processes.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Cases: the folder for plans.jsonl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan services on GPUs, and simulate their requests.

    [bold]orion simulate serving SCENARIO.yaml[/bold] simulates one scenario; if it has no plan, the planner makes one.

    [bold]orion simulate serving SCENARIO.yaml --from running.json[/bold] plans new rates from a plan that runs.

    [bold]orion simulate serving --cases FILE --profiles TABLE.csv --facts facts.json --gpus 4 -o out[/bold] plans each
    case of a file.
    """
    if (scenario is None) == (cases is None):
        raise Invalid("give either SCENARIO.yaml or --cases FILE")
    for flag, file in (("--log", log), ("--from", running)):
        if file is not None and scenario is None:
            raise Invalid(f"{flag} is for a scenario, and a case is planned by itself: leave it out")
    if scenario is not None:
        only_cases = {
            "--profiles": profiles, "--facts": facts, "--interference": interference, "--gpus": gpus,
            "--parts-per-gpu": parts_per_gpu, "--part-sizes": part_sizes, "--confirm": confirm or None,
            "--output": output,
        }  # fmt: skip
        if given := [flag for flag, value in only_cases.items() if value is not None]:
            raise Invalid(f"{given[0]} is for --cases, and a scenario does not use it: leave it out")
        from orion.cli.simulating import serving_scenario

        serving_scenario.run(scenario, planner, running, log, as_json=as_json)
        return
    from orion.cli.simulating import serving_cases

    serving_cases.run(
        serving_cases.Options(
            cases, profiles, facts, interference, gpus, planner, parts_per_gpu, part_sizes, confirm, workers, output,
        ),
        as_json=as_json,
    )  # fmt: skip
