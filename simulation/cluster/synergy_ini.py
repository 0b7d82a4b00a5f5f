"""Reads clusters in the .ini form of Synergy's simulator. All servers of such a cluster are equal."""

import configparser
from pathlib import Path

from orion.errors import Unreadable
from orion.planning.queues.resources import Server

MOST_SERVERS = 1_000_000

_INI = ("racks", "servers_per_rack", "gpus_per_server", "cpus_per_server", "dram_per_server", "sspeed_per_server")


def shape(path: Path, text: str) -> tuple[tuple[Server, None], ...]:
    """Return the servers, none of which has hp load.

    Raises:
        Unreadable: with a sentence.
    """
    parser = configparser.ConfigParser()
    try:
        parser.read_string(text)
        section = parser["CLUSTER"]
        values = {name: section.getint(name, fallback=None) for name in _INI}
    except KeyError as error:
        raise Unreadable(f"{path}: there is no section [CLUSTER]: give a cluster of Synergy") from error
    except configparser.Error as error:
        raise Unreadable(f"{path}: {' '.join(str(error).split())}: correct it") from error
    except ValueError as error:
        raise Unreadable(f"{path}: a value is no whole number ({error}): correct it") from error
    wrong = [name for name, value in values.items() if value is None or not 1 <= value <= MOST_SERVERS]
    if wrong:
        raise Unreadable(f"{path}: {wrong[0]} must be a whole number from 1 to {MOST_SERVERS}: correct it")
    racks, per_rack, gpus, cpus, memory_gb, storage = (int(values[name] or 0) for name in _INI)
    if racks * per_rack > MOST_SERVERS:
        raise Unreadable(f"{path}: {racks * per_rack} servers are more than {MOST_SERVERS}: correct it")
    server = Server(gpus, float(cpus), float(memory_gb), float(storage))
    return ((server, None),) * (racks * per_rack)
