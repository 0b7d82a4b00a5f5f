"""Views of GPUs and their tenants, for tests of who leaves and who comes back."""

from typing import Any

from orion.node_agent.parking.view import Place, Room, Tenant, View

GIB = 1 << 30
A, B = "GPU-a", "GPU-b"
FACTOR = 20.0


def tenant(name: str, place: Place, held: float, **fields: object) -> Tenant:
    return Tenant(name, place, since=0.0, held={A: round(held * GIB)}, **fields)  # type: ignore[arg-type]


def view(free: float, *tenants: Tenant, now: float = 1000.0, **room: float) -> View:
    amounts: dict[str, Any] = {name: round(value * GIB) for name, value in room.items()}
    return View(now, {A: Room(round(free * GIB), **amounts)}, tenants, FACTOR)
