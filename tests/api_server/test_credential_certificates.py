"""Credential plugins that return certificates, with an API server that authenticates clients by certificate."""

from pathlib import Path

from orion.api_server.requests import ApiServer
from testbed.authority import Authority, Issued
from tests.api_server.log_in_program import OverTls, Plugin


async def test_a_certificate_is_used_and_replaced_when_it_is_rejected(plugin: Plugin, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = OverTls(authority, tmp_path)
    await server.start()
    plugin.cluster = {"server": server.url, "certificate-authority": str(authority.certificate_path)}

    def gives(issued: Issued) -> None:
        plugin.gives(clientCertificateData=issued.certificate.decode(), clientKeyData=issued.key.decode())

    gives(authority.client("first"))
    api = ApiServer(plugin.access(), "orion-test")
    await api.get("/x")
    await api.get("/x")
    gives(authority.client("second"))
    server.refused.add("first")
    await api.get("/x")
    await api.get("/x")
    await api.close()
    await server.stop()
    assert server.seen == ["first"] * 3 + ["second"] * 2
    assert len(plugin.runs) == 2
