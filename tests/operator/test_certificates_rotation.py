"""All steps in a simulated cluster: over years, with faults, and with changes by people."""

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest

from orion.errors import NotFound
from orion.operator.certificates.metrics import Metrics
from orion.operator.certificates.rotating import Rotation
from tests.operator.certificate_world import EPOCH, HOOK, SECRET, SETTINGS, Rotator, World, installed


def run(world: World, rotator: Rotator, seconds: int) -> None:
    """Advance the time, and run a pass every few seconds; no connection may fail.

    The kubelet of the first replica delivers the Secret at once, the others as late as possible.
    """
    for _ in range(0, seconds, 4):
        world.advance(4)
        rotator.look()
        world.deliver(0)
        assert world.refused() == []
    rotator.look()


def at_rest(world: World) -> bool:
    """Return whether the leaf's authority is the only one that is trusted."""
    state = world.state
    return state.is_signed and set(world.bundles()) == {
        frozenset(each.fingerprint for each in (state.authority,) if each)
    }


def to_its_end(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine to its end, without other steps in between."""
    with contextlib.suppress(StopIteration):
        while True:
            work.send(None)


def test_one_pass_in_an_empty_cluster_makes_all_certificates() -> None:
    world = World()
    Rotator(world).look()
    assert at_rest(world)
    assert world.objects[SECRET]["type"] == "Opaque"


def test_the_bundle_holds_the_authority_before_the_secret_holds_a_leaf() -> None:
    world = World()
    rotator = Rotator(world)
    while not world.state.is_signed:
        trusted = world.bundles()
        rotator.step()
    authority = world.state.authority
    assert authority is not None
    assert set(trusted) == {frozenset({authority.fingerprint})}


def test_no_connection_fails_over_years() -> None:
    world, rotator = installed()
    first = world.state
    run(world, rotator, 1_400)
    assert world.state.authority != first.authority
    assert world.state.serves(EPOCH + timedelta(seconds=world.now))


def test_a_leaf_is_renewed_without_a_write_of_a_bundle() -> None:
    world, rotator = installed()
    leaf, writes = world.state.leaf, len(world.history[HOOK])
    run(world, rotator, 201)
    assert at_rest(world)
    assert world.state.leaf != leaf
    assert len(world.history[HOOK]) == writes


def test_at_rest_nothing_is_written() -> None:
    world, rotator = installed()
    version = world.version
    run(world, rotator, 100)
    assert world.version == version


def test_a_requested_authority_replaces_the_old_one_without_a_refused_connection() -> None:
    world, rotator = installed()
    before = world.state
    to_its_end(rotator.rotation.rotate("a test asked for it"))
    run(world, rotator, 4)
    assert world.state.leaf == before.leaf  # every API server must trust the new authority first
    to_its_end(rotator.rotation.rotate("a second time, which has no effect"))
    run(world, rotator, 12)
    assert world.state.is_signed
    assert len(world.state.retired) == 1
    run(world, rotator, 64)
    assert at_rest(world)
    assert world.state.authority != before.authority


def test_a_process_that_starts_in_the_middle_of_the_wait_waits_again() -> None:
    world, rotator = installed()
    to_its_end(rotator.rotation.rotate("a test asked for it"))
    rotator.look()
    for _ in range(5):
        world.advance(8)
        rotator.start()
        rotator.look()
        assert not world.state.is_signed
    run(world, rotator, 12)
    assert world.state.is_signed


@pytest.mark.parametrize("turns", range(6))
def test_a_slow_process_does_not_remove_an_authority_that_another_one_has_made(turns: int) -> None:
    world, rotator = installed()
    slow = Rotator(world)
    for _ in range(turns):
        slow.step()
    to_its_end(rotator.rotation.rotate("a test asked for it"))
    run(world, rotator, 16)
    assert world.state.is_signed
    while not slow.step():  # its view of the cluster is older than the leaf that replicas serve by now
        pass
    for server in range(2):
        world.observe(server)
    assert world.refused() == []


@pytest.mark.parametrize("turns", range(16))
def test_a_killed_process_leaves_a_state_from_which_another_one_continues(turns: int) -> None:
    world, killed = installed()
    to_its_end(killed.rotation.rotate("a test asked for it"))
    for _ in range(turns):
        killed.step()
    killed.start()
    run(world, Rotator(world), 100)
    assert at_rest(world)


def test_expired_certificates_are_fixed_in_one_pass() -> None:
    world, _ = installed()
    world.now += 100_000
    old = world.state.authority
    Rotator(world).look()
    assert at_rest(world)
    assert world.state.authority != old


def test_an_expired_leaf_in_the_middle_of_a_rotation_is_fixed_in_one_pass() -> None:
    world, rotator = installed()
    to_its_end(rotator.rotation.rotate("a test asked for it"))
    rotator.look()
    assert not world.state.is_signed
    world.now += 310
    Rotator(world).look()
    assert world.state.is_signed
    assert world.state.serves(EPOCH + timedelta(seconds=world.now))


def test_an_emptied_bundle_is_filled_again() -> None:
    world, rotator = installed()
    for text in ("", "Cg==", "no base64 at all"):
        body = world.objects[HOOK]
        body["webhooks"][1]["clientConfig"]["caBundle"] = text
        world.put(HOOK, body)
        rotator.look()
        assert at_rest(world)


def test_after_the_secret_is_deleted_replicas_stay_trusted_until_they_serve_the_new_leaf() -> None:
    world, rotator = installed()
    old = world.state.authority
    world.delete(SECRET)
    rotator.look()
    assert old is not None
    assert world.state.retired == (old.without_key(),)
    assert world.state.leaf is None  # an API server may not trust the new authority yet
    run(world, rotator, 100)
    assert at_rest(world)


def test_after_secret_and_bundle_are_emptied_one_pass_makes_both_again() -> None:
    world, rotator = installed()
    body = world.objects[HOOK]
    for webhook in body["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    world.put(HOOK, body)
    world.put(SECRET, {**world.objects[SECRET], "data": {}})
    rotator.look()
    assert at_rest(world)


def test_a_new_service_name_gives_a_new_leaf_of_the_same_authority() -> None:
    world, _ = installed()
    authority = world.state.authority
    Rotator(world, SETTINGS.model_copy(update={"names": ("10.0.0.7",)})).look()
    assert world.state.leaf is not None
    assert "10.0.0.7" in world.state.leaf.names
    assert world.state.authority == authority


def test_other_keys_of_the_secret_stay() -> None:
    world, rotator = installed()
    world.objects[SECRET]["data"]["theirs"] = "eA=="
    to_its_end(rotator.rotation.rotate("a test asked for it"))
    assert world.objects[SECRET]["data"]["theirs"] == "eA=="
    assert world.state.retired


def test_a_rotation_of_a_missing_secret_is_an_error_and_makes_no_key() -> None:
    world, _ = installed()
    before = dict(world.objects)
    elsewhere = Rotator(world, SETTINGS.model_copy(update={"secret": "misspelt"})).rotation
    with pytest.raises(NotFound, match=r"there is no Secret \S+/misspelt, .* --secret"):
        to_its_end(elsewhere.rotate("a test asked for it"))
    assert world.objects == before


def test_a_missing_configuration_allows_the_first_leaf_but_no_leaf_of_another_authority() -> None:
    world = World()
    body = world.objects.pop(HOOK)
    rotator = Rotator(world)
    rotator.look()
    assert world.state.is_signed
    to_its_end(rotator.rotation.rotate("a test asked for it"))
    for _ in range(30):
        world.now += 1
        assert "there is no webhook configuration" in rotator.look().why
    assert not world.state.is_signed
    world.put(HOOK, body)
    assert "waiting until every API server has read it" in rotator.look().why


async def test_a_process_that_may_not_write_makes_no_request() -> None:
    world = World()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Rotator(world).rotation.run(lambda: False), 0.05)
    assert SECRET not in world.objects


async def test_a_process_that_may_no_longer_write_reports_no_certificate() -> None:
    """Another one renews them from now on, so what this one knows would soon look like a certificate that is to end."""
    (_, rotator), metrics = installed(), Metrics()
    rotation = Rotation(rotator, SETTINGS, metrics, rotator._clocks())
    to_its_end(rotation.look())
    leaf = "orion_certificates_end_timestamp_seconds", {"what": "leaf"}
    assert metrics.registry.get_sample_value(*leaf)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rotation.run(lambda: False), 0.05)
    assert metrics.registry.get_sample_value(*leaf) is None
