"""The parts around the rotation: replicas, cert-manager, `orion certificates show`, and webhook configurations."""

import base64
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orion.operator.certificates import cert_manager
from orion.operator.certificates.bundles import Configuration, path_of
from orion.operator.certificates.replicas import Replica, Replicas, judge, replicas_of
from orion.operator.certificates.settings import CertificateSettings, Source
from orion.operator.certificates.showing import show
from tests.operator.certificate_samples import made, serving
from tests.operator.certificate_world import EPOCH, NAMES, SECRET, SETTINGS, Rotator, World

# -- Replicas ----------------------------------------------------------------------------------------------------------


def slice_of(*endpoints: dict[str, Any], ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"ports": ports or [{"name": "", "port": 9443}], "endpoints": list(endpoints)}


def test_endpoint_slices_name_the_replicas() -> None:
    first = slice_of({"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": False}})
    again = slice_of({"addresses": ["10.0.0.2"], "conditions": {"ready": True}})
    assert replicas_of([first, again], "https") == [Replica("10.0.0.1", 9443), Replica("10.0.0.2", 9443)]
    several = slice_of({"addresses": ["fd00::1"]}, ports=[{"name": "https", "port": 1}, {"name": "metrics", "port": 2}])
    assert list(map(str, replicas_of([several], "https"))) == ["[fd00::1]:1"]
    assert replicas_of([{"ports": None, "endpoints": None}], "https") == []


def test_which_replicas_must_serve_the_leaf() -> None:
    _, leaf = made()
    ready, other = Replica("a", 1), Replica("b", 1, ready=False)
    # A replica that is not ready and does not answer is ignored.
    assert judge([(ready, leaf.der), (other, None)], leaf) == ""
    assert judge([(ready, leaf.der), (other, b"old")], leaf) == "b:1 serves another certificate"
    assert judge([(ready, None)], leaf) == "a:1 does not answer"
    assert judge([(other, leaf.der)], leaf) == "the webhook has no replica that is ready"


async def test_a_tls_handshake_reads_the_certificate_of_each_replica(tmp_path: Path) -> None:
    (_, leaf), (_, other) = made(), made()
    async with serving(leaf, tmp_path) as port:
        closed = CertificateSettings(replicas=(f"127.0.0.1:{port}", "127.0.0.1:1"))
        assert await Replicas(Rotator(World()), closed).without(leaf) == "127.0.0.1:1 does not answer"
        replicas = Replicas(Rotator(World()), CertificateSettings(replicas=(f"127.0.0.1:{port}",)))
        assert await replicas.without(leaf) == ""
        assert "serves another certificate" in await replicas.without(other)


# -- cert-manager ------------------------------------------------------------------------------------------------------

FAKE_KINDS = {"/apis/cert-manager.io/v1": {"resources": [{"name": "certificates"}, {"name": "issuers"}]}}
INJECT = {"cert-manager.io/inject-ca-from": "orion-system/orion-webhook"}


def annotate(world: World) -> None:
    for name in NAMES:
        world.objects[path_of(name)]["metadata"]["annotations"] = INJECT


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
        annotate(world)
    rotator = Rotator(world, SETTINGS.model_copy(update={"source": source}))
    with caplog.at_level(logging.WARNING):
        look = rotator.look()
        rotator.look()
    assert (look.phase is None) is out
    assert (SECRET in world.objects) is not out
    assert sentence in caplog.text
    assert len(caplog.records) == bool(sentence)  # logged once
    assert cert_manager.INJECTED[0] in INJECT


# -- `orion certificates show` and configurations ----------------------------------------------------------------------


async def test_show_prints_trust_and_no_key(tmp_path: Path) -> None:
    world = World()
    rotator = Rotator(world)
    rotator.look()
    leaf = world.state.leaf
    assert leaf is not None
    async with serving(leaf, tmp_path) as port:
        settings = SETTINGS.model_copy(update={"replicas": (f"127.0.0.1:{port}", "127.0.0.1:1")})
        text = "\n".join(await show(Plain(world), settings, EPOCH))
    assert "at-rest" in text
    assert f"replica 127.0.0.1:{port}: serves the leaf" in text
    assert "replica 127.0.0.1:1: does not answer" in text
    assert text.count(": trusts ") == 2
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
    configuration = Configuration(NAMES[0], body)
    assert not configuration.holds([authority])
    after = Configuration(NAMES[0], configuration.with_bundle([authority]))
    assert after.holds([authority])
    assert after.body is not None
    assert after.body["webhooks"][0]["clientConfig"]["service"] == {"name": "s"}
    assert replace(configuration).body == body
