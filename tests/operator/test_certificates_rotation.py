"""The whole rotation in a simulated cluster: over years, with faults, and with changes by people."""

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest

from orion.errors import NotFound
from orion.operator.certificates.bundles import path_of
from orion.operator.certificates.deciding import Phase, phase
from tests.operator.certificate_world import EPOCH, NAMES, SECRET, SETTINGS, Rotator, World, installed


def run(world: World, rotator: Rotator, seconds: int) -> Phase | None:
    """Advance the time, and run a pass of the rotation every few seconds; no connection may fail."""
    for _ in range(0, seconds, 4):
        world.advance(4)
        rotator.look()
        assert world.refused() == []
    return rotator.look().phase


def to_its_end(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine to its end, without other steps in between."""
    with contextlib.suppress(StopIteration):
        while True:
            work.send(None)


def test_one_pass_in_an_empty_cluster_makes_all_certificates() -> None:
    world = World()
    look = Rotator(world).look()
    assert look.phase is Phase.AT_REST
    authority = world.state.authority
    assert authority is not None
    assert set(world.bundles()) == {frozenset({authority.fingerprint})}
    assert world.objects[SECRET]["type"] == "kubernetes.io/tls"


def test_no_connection_fails_over_years() -> None:
    world, rotator = installed()
    first = world.state
    run(world, rotator, 1_400)
    assert world.state.authority != first.authority
    assert world.state.serves(EPOCH + timedelta(seconds=world.now))


def test_a_leaf_is_renewed_without_a_write_of_a_bundle() -> None:
    world, rotator = installed()
    leaf, writes = world.state.leaf, [len(world.history[path_of(name)]) for name in NAMES]
    assert run(world, rotator, 201) is Phase.AT_REST
    assert world.state.leaf != leaf
    assert [len(world.history[path_of(name)]) for name in NAMES] == writes


def test_at_rest_nothing_is_written() -> None:
    world, rotator = installed()
    version = world.version
    run(world, rotator, 100)
    assert world.version == version


def test_expired_certificates_are_fixed_in_one_pass() -> None:
    world, _ = installed()
    world.now += 100_000
    old = world.state
    assert Rotator(world).look().phase is Phase.AT_REST
    assert old.authority is not None
    assert all(old.authority.fingerprint not in bundle for bundle in world.bundles())
    assert all(len(bundle) == 1 for bundle in world.bundles())


def test_an_expired_leaf_in_the_middle_of_a_rotation_is_fixed_in_one_pass() -> None:
    world, rotator = installed()
    rotator.rotate()
    rotator.look()
    rotator.look()
    assert world.state.coming is not None
    world.now += 310
    Rotator(world).look()
    assert phase(world.state, EPOCH + timedelta(seconds=world.now)) is not Phase.BROKEN


def test_an_emptied_bundle_is_filled_again() -> None:
    world, rotator = installed()
    for text in ("", "Cg==", "no base64 at all"):
        body = world.objects[path_of(NAMES[0])]
        body["webhooks"][1]["clientConfig"]["caBundle"] = text
        world.put(path_of(NAMES[0]), body)
        rotator.look()
        assert len(set(world.bundles())) == 1


def test_after_the_secret_is_deleted_replicas_stay_trusted_until_they_serve_the_new_leaf() -> None:
    world, rotator = installed()
    world.delete(SECRET)
    assert rotator.look().phase is Phase.EXCHANGED
    for server in range(2):
        world.observe(server)
    assert run(world, rotator, 80) is Phase.AT_REST


def test_a_new_service_name_gives_a_new_leaf_of_the_same_authority() -> None:
    world, _ = installed()
    authority = world.state.authority
    Rotator(world, SETTINGS.model_copy(update={"names": ("10.0.0.7",)})).look()
    assert world.state.leaf is not None
    assert "10.0.0.7" in world.state.leaf.names
    assert world.state.authority == authority


def test_the_rotation_keeps_other_keys_of_the_secret() -> None:
    world, rotator = installed()
    world.objects[SECRET]["data"]["theirs"] = "eA=="
    rotator.rotate()
    rotator.look()
    assert world.objects[SECRET]["data"]["theirs"] == "eA=="
    assert world.state.coming is not None


def test_a_rotation_of_a_missing_secret_is_an_error_and_makes_no_key() -> None:
    world, _ = installed()
    before = dict(world.objects)
    elsewhere = Rotator(world, SETTINGS.model_copy(update={"secret": "misspelt"})).rotation
    with pytest.raises(NotFound, match=r"there is no Secret \S+/misspelt, .* --secret"):
        to_its_end(elsewhere.rotate("a test asked for it"))
    assert world.objects == before


def test_a_missing_configuration_allows_the_start_but_no_exchange() -> None:
    world = World()
    body = world.objects.pop(path_of(NAMES[1]))
    rotator = Rotator(world)
    assert rotator.look().phase is Phase.AT_REST
    rotator.rotate()
    rotator.look()
    for _ in range(30):
        world.now += 1
        assert "does not exist" in rotator.look().why
    world.put(path_of(NAMES[1]), body)
    assert rotator.look().phase is Phase.SPREADING


async def test_a_process_that_may_not_write_makes_no_request() -> None:
    world = World()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Rotator(world).rotation.run(lambda: False), 0.05)
    assert SECRET not in world.objects
