"""Names of schedulers, such as SRTF+tune: a policy that orders jobs and a mechanism that gives them resources."""

from dataclasses import dataclass

from orion.errors import Invalid
from orion.planning.queues import compatible
from orion.planning.queues.order import POLICIES
from orion.planning.queues.placement import MECHANISMS


@dataclass(frozen=True)
class Scheduler:
    """A policy and a mechanism."""

    policy: str
    mechanism: str

    def __str__(self) -> str:
        return f"{self.policy}+{self.mechanism}"


def known(*, is_compatible: bool) -> list[Scheduler]:
    """Return all schedulers of a mode, in the order of the documentation."""
    return [
        Scheduler(policy, mechanism)
        for policy in POLICIES
        for mechanism in MECHANISMS
        if not is_compatible or (policy in compatible.KEYS and (mechanism != "opt" or policy in compatible.OPT))
    ]


def parse(text: str, *, is_compatible: bool) -> list[Scheduler]:
    """Return the schedulers of a list such as FIFO+fair,SRTF+tune, or all of them.

    Raises:
        Invalid: with a sentence.
    """
    there = known(is_compatible=is_compatible)
    if text.strip().lower() == "all":
        return there
    found: list[Scheduler] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        policy, _, mechanism = name.partition("+")
        scheduler = Scheduler(policy.upper(), mechanism.lower() or "greedy")
        if scheduler not in there:
            raise Invalid(_why(name, scheduler, there))
        if scheduler not in found:
            found.append(scheduler)
    if not found:
        raise Invalid(
            f"no scheduler is named: give a list such as FIFO+fair,SRTF+tune, or all (there are {_names(there)})"
        )
    return found


def _why(name: str, scheduler: Scheduler, there: list[Scheduler]) -> str:
    if scheduler in known(is_compatible=False):
        reason = "the original cannot construct it"
        if scheduler.policy in compatible.KEYS:
            reason = "the original's integer program has wrong capacities there"
        elif scheduler.policy != "SRSF":
            reason = "the original does not have it"
        return f"{scheduler} does not exist with --compatible synergy, because {reason}: leave that option out"
    policies = dict.fromkeys(each.policy for each in there)
    return (
        f"no scheduler is called {name}: join one of {', '.join(policies)} and one of {', '.join(MECHANISMS)} "
        "by a +, such as SRTF+tune"
    )


def _names(there: list[Scheduler]) -> str:
    return ", ".join(map(str, there))
