"""How much of what the webhook has one peer may take: the pure rules."""

import ipaddress

import pytest

from orion.operator.webhook import connections
from orion.operator.webhook.bounds import BYTES, CONNECTIONS, WAITING, Account, Amounts, Peer, Peers

AMOUNTS = Amounts(total=100, each=30, reserve=20, little=5)
SERVER = Peer("10.0.0.1", True)


def unknown_peer(number: int) -> Peer:
    return Peer(f"10.1.0.{number}", False)


def test_one_peer_gets_its_part_only() -> None:
    account = Account(AMOUNTS, reserved=False)
    assert account.take(unknown_peer(1), 30)
    assert not account.take(unknown_peer(1), 1)
    assert account.take(unknown_peer(2), 30)
    account.give_back(unknown_peer(1), 10)
    assert account.take(unknown_peer(1), 10)


@pytest.mark.parametrize("count", [1, 3, 10, 40])
def test_greedy_peers_get_equal_parts_and_leave_one_for_the_next(count: int) -> None:
    account = Account(Amounts(total=1_000, each=1_000, reserve=0, little=0), reserved=False)
    parts = dict.fromkeys(range(count), 0)
    for _ in range(1_000):
        for number in parts:
            parts[number] += account.take(unknown_peer(number), 1)
    assert max(parts.values()) - min(parts.values()) <= 1
    assert account.take(SERVER._replace(is_api_server=False), 1_000 // (count + 1) // 2)


def use_all_but_the_reserve(account: Account) -> None:
    assert all(account.take(unknown_peer(number), 20) for number in range(4))


def test_the_reserve_is_for_peers_that_use_little_if_no_api_server_is_known() -> None:
    account = Account(AMOUNTS, reserved=False)
    use_all_but_the_reserve(account)
    assert not account.take(unknown_peer(9), 6)
    assert account.take(unknown_peer(9), 5)
    assert not account.take(unknown_peer(9), 1)
    assert not account.take(unknown_peer(0), 1)


def test_the_reserve_is_for_api_servers_if_they_are_known() -> None:
    account = Account(AMOUNTS, reserved=True)
    use_all_but_the_reserve(account)
    assert not account.take(unknown_peer(9), 1)
    assert account.take(SERVER, 20)
    assert not account.take(SERVER, 1)


def test_what_is_given_back_leaves_nothing_behind() -> None:
    account = Account(AMOUNTS, reserved=False)
    assert account.take(unknown_peer(1), 7)
    account.give_back(unknown_peer(1), 7)
    assert account.total == 0
    assert not account._used


def test_a_peer_is_an_api_server_by_its_network() -> None:
    peers = Peers((ipaddress.ip_network("10.0.0.0/30"), ipaddress.ip_network("fd00::/64")))
    assert peers.at("10.0.0.3").is_api_server
    assert peers.at("::ffff:10.0.0.3") == peers.at("10.0.0.3")
    assert peers.at("fd00::7").is_api_server
    assert not peers.at("10.0.0.4").is_api_server
    assert not peers.at("fe80::1%eth0").is_api_server


def test_the_bounds_fit_into_the_memory_of_the_chart() -> None:
    per_connection = 256 * 2**10 + 3 * connections._BUFFER  # asyncio's TLS buffer, and aiohttp's
    per_waiting = 8 * 2**10  # 2.3 KiB of objects, the kernel's socket, and the handshake's first message
    used = 2 * BYTES.total + CONNECTIONS.total * per_connection + WAITING.total * per_waiting
    assert used <= 300 * 2**20  # without requests it has 65 MiB, and the chart gives it 384


def test_an_unknown_api_server_may_have_as_many_connections_waiting_as_get_a_handshake_before_it_gives_up() -> None:
    account, review_s = Account(WAITING, reserved=False), 5.0
    assert all(account.take(unknown_peer(1), 1) for _ in range(round(review_s / connections._HANDSHAKES_APART_S)))
    assert WAITING.total - WAITING.reserve <= 1.1 * connections._WAIT_S / connections._HANDSHAKES_APART_S


def test_an_unknown_api_server_may_have_a_connection_for_each_of_its_requests() -> None:
    account = Account(CONNECTIONS, reserved=False)
    assert all(account.take(unknown_peer(1), 1) for _ in range(200))
