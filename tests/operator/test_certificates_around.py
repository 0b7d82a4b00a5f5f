"""The parts around the rotation: cert-manager, `orion certificates show`, and webhook configurations."""

import base64
import logging
from dataclasses import replace
from typing import Any

import pytest

from orion.operator.certificates.bundles import Configuration
from orion.operator.certificates.showing import show
from tests.operator.certificate_samples import made
from tests.operator.certificate_world import EPOCH, HOOK, SECRET, SETTINGS, Rotator, World, installed

# -- cert-manager ------------------------------------------------------------------------------------------------------


def test_the_operator_leaves_a_configuration_of_cert_manager_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.objects[HOOK]["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "orion-system/orion-webhook"}
    rotator = Rotator(world)
    with caplog.at_level(logging.WARNING):
        look = rotator.look()
        rotator.look()
    assert look.state is None
    assert SECRET not in world.objects
    assert ["remove the annotation" in each.message for each in caplog.records] == [True]  # logged once


# -- `orion certificates show` and configurations ----------------------------------------------------------------------


async def test_show_prints_trust_and_no_key() -> None:
    world, rotator = installed()

    async def shown() -> str:
        return "\n".join(await show(Plain(world), SETTINGS, EPOCH))

    text = await shown()
    assert ": at rest" in text
    assert text.count(": trusts ") == 1
    rotator.rotate()
    while rotator.work is not None:
        rotator.step()
    assert "the new authority has not signed a leaf yet" in await shown()
    assert "does not trust" in await shown()
    rotator.look()
    assert "does not trust" not in await shown()
    key = base64.b64decode(world.objects[SECRET]["data"]["tls.key"]).decode()
    assert "PRIVATE" in key
    assert "PRIVATE" not in text


class Plain:
    """An API client of a world that answers at once, for a real event loop."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def get(self, path: str, accept: str = "", **query: str) -> dict[str, Any]:
        return self.world.objects[path]

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def put(self, path: str, body: Any) -> dict[str, Any]:
        raise NotImplementedError


def test_only_the_bundles_of_a_configuration_change() -> None:
    authority, _ = made()
    body = {"metadata": {"name": "x"}, "webhooks": [{"name": "w", "clientConfig": {"service": {"name": "s"}}}]}
    configuration = Configuration("x", body)
    assert not configuration.holds([authority])
    after = Configuration("x", configuration.with_bundle([authority]))
    assert after.holds([authority])
    assert after.body is not None
    assert after.body["webhooks"][0]["clientConfig"]["service"] == {"name": "s"}
    assert replace(configuration).body == body
