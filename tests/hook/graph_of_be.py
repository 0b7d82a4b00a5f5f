"""Makes and launches graphs in a scripted be client.

The hook launches a long graph in pieces while its GPU has hp clients. `own` counts how often the driver has launched
the program's own executable, so a launch that does not count was a launch in pieces.
"""

from tests.hook.scripted_client import DEADLINE, Client, eventually

Pair = tuple[Client, Client]

KINDS = [
    *("nodes", "captured", "early", "children", "hosts", "events", "copies", "writes"),
    *("allocates", "decides", "launchable"),
]
CUT, WHOLE = KINDS[:8], KINDS[8:]
NOTHING, IN_GRAPH, IN_EXECUTABLE, IN_GENERAL, ANOTHER, REFUSED, SWITCHES = CHANGES = range(7)
A_LAUNCH = 1_000_000
LONG = "200 150"
""" 200 kernels of 150 us, which is 30 ms: many windows. """
SOME = "40 50"


def make(client: Client, kind: str = "nodes", kernels: str = LONG, branches: int = 1, log: bool = True) -> None:
    client.must(f"mute {int(not log)}")
    client.must(f"make {KINDS.index(kind)} {kernels} {branches}")


def own(client: Client) -> int:
    """Return how often the driver has launched the program's own executable."""
    return client.do("own").result


def launches_own(client: Client, launches: int = 2) -> int:
    """Launch the graph and return how many of the launches were launches of the program's own executable."""
    before = own(client)
    client.must(f"play {launches} -1")
    return own(client) - before


def until_in_pieces(be: Client) -> None:
    eventually(lambda: launches_own(be) == 0, "the hook launches pieces instead of the program's executable", DEADLINE)


def until_whole(be: Client) -> None:
    eventually(lambda: launches_own(be) == 2, "the hook launches the program's own executable", DEADLINE)
