"""Finds the GPUs whose resource file has an id, for `orion run --id`."""

from pathlib import Path

from orion.cli import agents, slot_choice
from orion.errors import NotFound, Unavailable
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import NoAgent

_NAMED = 12
""" An error names so many ids of a file. """


def choose_gpus(root: Path, wanted: str, rule_id: str) -> tuple[list[agent_pb2.Gpu], bool]:
    """Return the GPUs whose file has an id, of those that a user names, and whether these are all of the agent's.

    Args:
        root: the agent's.
        wanted: as in `slot_choice.choose_gpus`.
        rule_id: the id.

    Raises:
        NotFound: no file has this id.
        Unavailable: there is no agent. `orion run` would start one without a resource file.
    """
    try:
        with agents.asking(root) as agent:
            snapshot, rules = agent.snapshot(), agent.rules()
    except NoAgent as error:
        if error.forbidden or error.listens:
            raise
        raise Unavailable(
            f"no agent listens at {root}, and --id needs one: start `orion agent --root {root} --resource-config FILE`"
        ) from error
    named = {gpu.uuid for gpu in slot_choice.choose_gpus(snapshot, wanted)}
    found = [each for each in rules.gpus if each.gpu in named]
    having = {each.gpu for each in found if any(rule.id == rule_id for rule in each.rules)}
    if not having:
        sentences = dict.fromkeys(_lacks(each, rule_id) for each in found)
        raise NotFound("; ".join(sentences))
    return [gpu for gpu in snapshot.gpus if gpu.uuid in having], len(having) == len(snapshot.gpus)


def _lacks(rules: agent_pb2.GpuRules, rule_id: str) -> str:
    ids = [rule.id for rule in rules.rules]
    known = ", ".join(ids[:_NAMED]) + ", ..." * (len(ids) > _NAMED)
    faults = "".join(f" ({remark})" for remark in rules.remarks if rules.faulty)
    return f"{rules.file} has no id {rule_id!r}; its ids are: {known or 'none'}{faults}"
