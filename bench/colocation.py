"""A latency-critical server beside a trainer on one GPU: `python -m orion.bench.colocation --output DIR`.

The figures of docs/results come from here. Systems that are compared:

    alone       hp without the hook, nobody else
    be-alone    be without the hook, nobody else
    orion       both under the hook, with an agent
    timeslice   both without the hook (only with --timeslice-rounds)

All processes of one be kind are started once, hooked and unhooked ones, and told by turns when to work; those whose
turn it is not have nothing on the GPU. In a round each system runs once, in random order, and replays the same
arrivals. The raw data of every request is written after every round, so a run that is cut short is not lost.

Needs an NVIDIA GPU and torch; about six minutes with the defaults. `python -m orion.bench.report` makes the table.
"""

import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from orion.bench import raw_data
from orion.bench.arrivals import arrivals_with_lead
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.bench.crew import Crew, Worker, WorkerError
from orion.bench.estimates import completed_between, latencies_ms, percentile
from orion.bench.managed import AgentError, ManagedGPU, machine
from orion.bench.stand_ins import load

BE_KINDS = ("resnet50-training", "bert-training", "gemm")
LEAD = 1.0  # seconds before anything counts
PAUSE = 0.3  # seconds between the command and its begin: both workers have read it by then


class Colocation:
    """One measurement: its workers, its options, its raw data."""

    def __init__(self, options: Any, environment: dict[str, str], crew: Crew, managed: ManagedGPU) -> None:
        """Prepare; `run` does it.

        Args:
            options: Of `parse`.
            environment: Of processes without the hook.
            crew: Where workers are hired.
            managed: The GPU under its private agent.
        """
        self._options = options
        self._crew = crew
        self._managed = managed
        self._base = environment
        self._shuffle = random.Random(options.seed)
        self._hp_environment = managed.client_environment("hp")
        self._be_environment = managed.client_environment("be")
        self._hp: dict[str, Worker] = {}
        self._be: dict[str, Worker] = {}
        self.raw: dict[str, Any] = {
            **raw_data.header("colocation"),
            "rate": options.rate,
            "lead_seconds": LEAD,
            "be": {},
            "runs": [],
            "errors": [],
        }

    def run(self) -> None:
        """Measure all kinds; a kind that fails is noted and the next one begins."""
        hp = load("resnet50-inference", {"precision": self._options.precision}, self._options.simulated)
        self._hp = {
            "off": self._crew.hire("hp off", *hp, self._base),
            "on": self._crew.hire("hp on", *hp, self._hp_environment),
        }
        self._crew.ready(*self._hp.values())
        self._managed.wait_for_clients(1)
        self.raw["hp"] = {name: worker.about for name, worker in self._hp.items()}
        say(f"hp: {self.raw['hp']}")
        for kind in self._options.be:
            try:
                self._run_kind(kind)
            except WorkerError as error:
                say(f"{kind}: {error}")
                self.raw["errors"].append({"be": kind, "error": str(error)})
            self._crew.dismiss(self._be.values())
            self._be = {}
            self.write()

    def write(self) -> None:
        """Write the raw data as it is now."""
        raw_data.write(self._options.output / "colocation.json.gz", self.raw)

    def _run_kind(self, kind: str) -> None:
        be = load(kind, {}, self._options.simulated)
        self._be = {
            "off": self._crew.hire(f"{kind} off", *be, self._base),
            "on": self._crew.hire(f"{kind} on", *be, self._be_environment),
        }
        self._crew.ready(*self._be.values())
        self._managed.wait_for_clients(2)
        self.raw["be"][kind] = {name: worker.about for name, worker in self._be.items()}
        say(f"{kind}: {self.raw['be'][kind]}")
        for number in range(self._options.rounds):
            systems = ["alone", "be-alone", "orion"]
            if number < self._options.timeslice_rounds:
                systems.append("timeslice")
            self._shuffle.shuffle(systems)
            for system in systems:
                self._run_system(kind, number, system)
            self.write()

    def _run_system(self, kind: str, number: int, system: str) -> None:
        arrivals, end = arrivals_with_lead(
            self._options.rate, self._options.requests, LEAD, self._options.seed * 1000 + number
        )
        if system == "be-alone":
            end = LEAD + self._options.be_alone_seconds
        which = "on" if system == "orion" else "off"
        begin = time.monotonic() + PAUSE
        workers = []
        if system != "be-alone":
            self._hp[which].command(do="serve", begin=begin, arrivals=arrivals)
            workers.append(self._hp[which])
        if system != "alone":
            self._be[which].command(do="loop", begin=begin, end=begin + end + 0.2)
            workers.append(self._be[which])
        replies = self._crew.gather(*workers, seconds=3 * end + 30)
        row: dict[str, Any] = {"be": kind, "round": number, "system": system, "window": [LEAD, end]}
        if system != "be-alone":
            served = replies[0]
            row["arrivals"] = raw_data.rounded(arrivals)
            row["starts"], row["ends"] = raw_data.rounded(served["starts"]), raw_data.rounded(served["ends"])
        if system != "alone":
            row["be_ends"], row["be_amount"] = raw_data.rounded(replies[-1]["ends"]), self._be[which].about["amount"]
        if system == "orion":
            row["gpu"] = MessageToDict(self._managed.snapshot())
        self.raw["runs"].append(row)
        say(f"{kind} round {number + 1}: {one_line(row)}")


def one_line(run: dict[str, Any]) -> str:
    """Say what one run gave."""
    words = [f"{run['system']:<9}"]
    begin, end = run["window"]
    if "arrivals" in run:
        latencies = latencies_ms(run["arrivals"], run["ends"])[-sum(1 for time in run["arrivals"] if time >= begin) :]
        words += [f"hp p{rank} {percentile(latencies, rank):.2f} ms" for rank in (50, 95, 99)]
    if "be_ends" in run:
        words.append(f"be {completed_between(run['be_ends'], begin, end) * run['be_amount'] / (end - begin):.1f}/s")
    return "  ".join(words)


def parse(arguments: list[str] | None) -> Any:
    """Parse the command line."""
    parser = OneSentenceParser(prog="orion.bench.colocation", description="hp beside be on one GPU.")
    parser.add_argument("--output", type=Path, required=True, help="a folder for the raw data")
    parser.add_argument("--be", nargs="+", choices=BE_KINDS, default=list(BE_KINDS), help="which trainers")
    parser.add_argument("--rounds", type=counted, default=3)
    parser.add_argument("--requests", type=counted, default=1000, help="that count, a round and system")
    parser.add_argument("--rate", type=positive, default=80.0, help="requests a second")
    parser.add_argument("--be-alone-seconds", type=positive, default=5.0)
    parser.add_argument("--timeslice-rounds", type=int, default=0, help="rounds that also run both unmanaged")
    parser.add_argument("--precision", choices=("auto", "bf16", "autocast", "tf32"), default="auto", help="of hp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--window-us", type=int, default=0, help="another window than the agent's default")
    parser.add_argument("--linger-floor-us", type=int, default=0)
    parser.add_argument("--linger-ceiling-us", type=int, default=0)
    parser.add_argument("--simulated", action="store_true", help="try the script with stand-ins; no results")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure; exit status 0 only if every kind was measured."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            environment = stack.enter_context(machine(options.simulated))
            managed = stack.enter_context(ManagedGPU(environment, options.simulated))
            managed.set_policy(options.window_us, options.linger_floor_us, options.linger_ceiling_us)
            measurement = Colocation(options, environment, stack.enter_context(Crew()), managed)
            measurement.run()
    except (WorkerError, AgentError, FileNotFoundError) as error:
        print(f"orion.bench.colocation: {error}", file=sys.stderr)
        return 1
    return 1 if measurement.raw["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
