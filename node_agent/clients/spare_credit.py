"""What clients have of their credits and have not spent, and how the agent takes it back (credit.py)."""

from orion.node_agent.clients.client import Client


def promised_mib(client: Client) -> int:
    """Return what nobody else may have, in MiB: a client's credit, or what it holds if that is more."""
    credit = client.slot.page.credit(client.key[0]) if client.keeps_credit else 0
    return max(credit, client.record.memory_mib)


def spare_mib(client: Client) -> int:
    """Return what a client has not used of its credit, in MiB."""
    return max(0, client.slot.page.credit(client.key[0]) - client.record.memory_mib) if client.keeps_credit else 0


def lower(spare: dict[Client, int], needed: int, wanted: int) -> None:
    """Take credit back from clients: all of their spare credit until `needed`, then half of it until `wanted`.

    A client may have spent some of it just before. It keeps that; the caller looks again at what all hold.
    """
    for client in sorted(spare, key=lambda each: spare[each], reverse=True):
        taken = min(spare[client], max(0, needed))
        taken += min(max(0, wanted - max(0, needed)), (spare[client] - taken) // 2)
        if taken <= 0:
            return
        needed, wanted = needed - taken, wanted - taken
        page, index = client.slot.page, client.key[0]
        before = page.credit(index)
        page.set_credit(index, before - taken)
        if (held := client.record.memory_mib) > before - taken:
            page.set_credit(index, min(before, held))
