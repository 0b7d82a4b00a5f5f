"""Asks a registry for the current digest of a base image's tag; the Dockerfile names its bases by tag and digest.

It follows the distribution specification, as every registry client does: a HEAD of the manifest, with an anonymous
token if the registry requires one. So pins can be renewed on machines without docker and skopeo.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from email.message import Message

from testbed.errors import Failed

REGISTRY = "https://registry-1.docker.io"
# Multi-platform indexes, because the image is built for more than one platform.
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_PINNED = re.compile(r"(?m)^(ARG (?:BUILDER|RUNTIME)=)([a-z0-9./_-]+):([\w.-]+)@(sha256:[0-9a-f]{64})$")
SECONDS = 20


def renew(dockerfile: str, ask: Callable[[str, str], str]) -> str:
    """Return a Dockerfile whose bases have the digests that `ask` returns for repository and tag.

    Raises:
        ValueError: the Dockerfile does not name both bases by tag and digest.
        Failed: see `digest`.
    """
    bases = _PINNED.findall(dockerfile)
    if len(bases) != 2:
        raise ValueError("the Dockerfile does not name BUILDER and RUNTIME by tag and digest")
    now = {base: ask(*base) for base in {(repository, tag) for _, repository, tag, _ in bases}}
    return _PINNED.sub(lambda found: f"{found[1]}{found[2]}:{found[3]}@{now[found[2], found[3]]}", dockerfile)


def digest(repository: str, tag: str, registry: str = REGISTRY) -> str:
    """Return the digest of a tag's image, for all platforms.

    Args:
        repository: such as `python`.
        tag: such as `3.12-slim-bookworm`.
        registry: the address of its API.

    Raises:
        Failed: the registry cannot be reached, does not know the tag, or has it for one platform only.
    """
    path = repository if "/" in repository else f"library/{repository}"
    try:
        headers = _head(f"{registry}/v2/{path}/manifests/{tag}")
    except (OSError, ValueError) as reason:  # an HTTPError is an OSError
        raise Failed(f"{registry} gives no digest of {repository}:{tag} ({reason})") from reason
    found = headers.get("Docker-Content-Digest", "")
    if headers.get_content_type() not in _INDEXES or not re.fullmatch(r"sha256:[0-9a-f]{64}", found):
        raise Failed(f"{registry} has no digest of {repository}:{tag} for all platforms")
    return found


def _head(address: str) -> Message:
    request = urllib.request.Request(address, method="HEAD", headers={"Accept": ", ".join(_INDEXES)})
    try:
        return _headers(request)
    except urllib.error.HTTPError as refused:
        challenge = refused.headers.get("WWW-Authenticate", "")
        if refused.code != 401 or not challenge.startswith("Bearer "):
            raise
    request.add_header("Authorization", f"Bearer {_token(challenge)}")
    return _headers(request)


def _headers(request: urllib.request.Request) -> Message:
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        headers: Message = answer.headers
        return headers


def _token(challenge: str) -> str:
    """Return an anonymous token, from the address in a challenge."""
    reported = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    question = urllib.parse.urlencode({name: reported[name] for name in ("service", "scope") if name in reported})
    with urllib.request.urlopen(f"{reported.get('realm')}?{question}", timeout=SECONDS) as answer:
        return str(json.load(answer)["token"])
