"""The digest of a tag, from a registry on this machine that requires a token, as the real ones do."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from testbed.errors import Failed
from tools.image import registry

INDEX = "application/vnd.oci.image.index.v1+json"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
# The registry's tags: the kind of manifest, and its digest.
TAGS = {
    "3.12-slim": (INDEX, DIGEST),
    "of-one-platform": ("application/vnd.oci.image.manifest.v1+json", DIGEST),
    "without-digest": (INDEX, ""),
}


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked_well = self.path == "/token?service=here&scope=repository%3Alibrary%2Fpython%3Apull"
        self.send_response(200 if asked_well else 400)
        self.end_headers()
        self.wfile.write(json.dumps({"token": "for-anybody"}).encode())

    def do_HEAD(self) -> None:
        repository, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
        host = self.headers["Host"]
        if self.headers["Authorization"] != "Bearer for-anybody":
            self.send_response(401)
            scope = f"repository:{repository}:pull"
            self.send_header("WWW-Authenticate", f'Bearer realm="http://{host}/token",service="here",scope="{scope}"')
        elif tag in TAGS and INDEX in self.headers["Accept"]:
            kind, digest = TAGS[tag]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", digest)
        else:
            self.send_response(404)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bypass the machine's proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_tag_has_a_digest(address: str) -> None:
    assert registry.digest("python", "3.12-slim", address) == DIGEST


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [
        ("no-such-tag", "gives no digest of python:no-such-tag .*404"),
        ("of-one-platform", "no digest of python:of-one-platform for all platforms"),
        ("without-digest", "no digest of python:without-digest for all platforms"),
    ],
)
def test_a_missing_digest_is_reported(address: str, tag: str, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        registry.digest("python", tag, address)


def test_an_unreachable_registry_is_reported() -> None:
    with pytest.raises(Failed, match="gives no digest"):
        registry.digest("python", "3.12-slim", "http://127.0.0.1:9")
