"""The parts around the rotation: cert-manager, `orion certificates show`, and webhook configurations."""

import base64
import logging
from dataclasses import replace
from typing import Any

import pytest

from orion.operator.certificates import cert_manager
from orion.operator.certificates.bundles import Configuration
from orion.operator.certificates.settings import Source
from orion.operator.certificates.showing import show
from tests.operator.certificate_samples import made
from tests.operator.certificate_world import EPOCH, HOOK, SECRET, SETTINGS, Rotator, World, installed

# -- cert-manager ------------------------------------------------------------------------------------------------------

FAKE_KINDS = {"/apis/cert-manager.io/v1": {"resources": [{"name": "certificates"}, {"name": "issuers"}]}}
INJECT = {"cert-manager.io/inject-ca-from": "orion-system/orion-webhook"}


@pytest.mark.parametrize(
    ("source", "annotated", "fake_kinds", "out", "sentence"),
    [
        (Source.OPERATOR, False, True, False, ""),
        (Source.OPERATOR, True, False, False, ""),
        (Source.OPERATOR, True, True, True, "remove the annotation"),
        (Source.CERT_MANAGER, True, True, True, "cert-manager fills the Secret"),
        (Source.CERT_MANAGER, False, True, True, "lacks the annotation cert-manager.io/inject-ca-from"),
        (Source.CERT_MANAGER, True, False, False, "the operator makes the certificates until"),
    ],
)
def test_the_rotation_does_nothing_where_a_fake_cert_manager_works(
    source: Source, annotated: bool, fake_kinds: bool, out: bool, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(kinds=FAKE_KINDS if fake_kinds else {})
    if annotated:
        world.objects[HOOK]["metadata"]["annotations"] = INJECT
    rotator = Rotator(world, SETTINGS.model_copy(update={"source": source}))
    with caplog.at_level(logging.WARNING):
        look = rotator.look()
        rotator.look()
    assert (look.state is None) is out
    assert (SECRET in world.objects) is not out
    assert sentence in caplog.text
    assert len(caplog.records) == bool(sentence)  # logged once
    assert cert_manager.INJECTED[0] in INJECT


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
