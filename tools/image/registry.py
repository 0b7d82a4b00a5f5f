"""The digest that a registry gives a tag of a base image today: the base that the Dockerfile names by both.

Asked as every client of registries asks (the distribution specification: a HEAD of the manifest, with a token for
anybody where one is wanted), so that pins can be renewed where there is neither docker nor skopeo.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from email.message import Message

REGISTRY = "https://registry-1.docker.io"
# Of all platforms first: the image is built for more than one.
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_PINNED = re.compile(r"(?m)^(ARG (?:BUILDER|RUNTIME)=)([a-z0-9./_-]+):([\w.-]+)@(sha256:[0-9a-f]{64})$")
SECONDS = 20


class Unreachable(Exception):
    """A registry does not tell; the text says why."""


def renew(dockerfile: str, ask: Callable[[str, str], str]) -> str:
    """Return a Dockerfile whose bases have the digests that `ask` gives for repository and tag.

    Raises:
        ValueError: it does not name both bases by tag and digest.
        Unreachable: see `digest`.
    """
    bases = _PINNED.findall(dockerfile)
    if len(bases) != 2:
        raise ValueError("the Dockerfile does not name BUILDER and RUNTIME by tag and digest")
    now = {base: ask(*base) for base in {(repository, tag) for _, repository, tag, _ in bases}}
    return _PINNED.sub(lambda found: f"{found[1]}{found[2]}:{found[3]}@{now[found[2], found[3]]}", dockerfile)


def digest(repository: str, tag: str, registry: str = REGISTRY) -> str:
    """Return the digest of what a tag names, for all platforms.

    Args:
        repository: such as `python`.
        tag: such as `3.12-slim-bookworm`.
        registry: the address of its API.

    Raises:
        Unreachable: the registry cannot be reached, or does not know the tag, or only for one platform.
    """
    path = repository if "/" in repository else f"library/{repository}"
    try:
        said = _head(f"{registry}/v2/{path}/manifests/{tag}")
    except (OSError, ValueError) as reason:  # an HTTPError is an OSError
        raise Unreachable(f"{registry} does not tell the digest of {repository}:{tag} ({reason})") from reason
    found = said.get("Docker-Content-Digest", "")
    if said.get_content_type() not in _INDEXES or not re.fullmatch(r"sha256:[0-9a-f]{64}", found):
        raise Unreachable(f"{registry} gives no digest of {repository}:{tag} for all platforms")
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
    """Return a token for anybody, from where a challenge says that there are some."""
    reported = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    question = urllib.parse.urlencode({name: reported[name] for name in ("service", "scope") if name in reported})
    with urllib.request.urlopen(f"{reported.get('realm')}?{question}", timeout=SECONDS) as answer:
        return str(json.load(answer)["token"])
