"""The last look at what clients take, between a decision and letting a tenant back into room that was free."""

from collections.abc import Mapping

from orion.node_agent.pages import agent_pages
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.view import View


def where_clients_have_grown(view: View, cards: Mapping[str, GpuRoom]) -> set[str]:
    """Return the GPUs on which clients have taken more than was decided upon.

    Their pages say what they take before they look who comes back. The agent writes that before it looks at the pages
    (`GpuRoom.announce`), so one of the two sees the other.

    Args:
        view: what was decided upon.
        cards: all GPUs.
    """
    agent_pages.fence()
    return {uuid for uuid, seen in view.cards.items() if cards[uuid].grown > seen.grown}
