"""Finds the way to the API server: a kubeconfig that is named, else the pod's service account, else $KUBECONFIG.

A kubeconfig that logs in by a program is refused: what runs here runs as a service, where there is nobody to log in.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from orion.api_server.access import Access

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoCluster(Exception):
    """No API server is configured, or not in a way that can be used; the text is a sentence."""


def find_access(kubeconfig: Path | None = None) -> Access:
    """Return the access that is configured: a kubeconfig if one is named, else the pod's, else $KUBECONFIG.

    Raises:
        NoCluster: there is none, or it cannot be used.
    """
    if kubeconfig is not None:
        return _read_kubeconfig([kubeconfig])
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return _in_cluster()
    listed = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return _read_kubeconfig(listed or [Path.home() / ".kube" / "config"])


def _in_cluster() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt")
    except OSError as error:
        raise NoCluster(f"this pod has no service account: {error}") from error
    return Access(f"https://{host}:{port}", tls, token_file=SERVICE_ACCOUNT / "token")


# -- Kubeconfigs -------------------------------------------------------------------------------------------------------


def _read_kubeconfig(files: Sequence[Path]) -> Access:
    """Return what the current context says; of several files the first that names something counts, as for kubectl."""
    there = [file for file in files if file.exists()] or files[:1]
    told = " and ".join(map(str, there))
    try:
        return _of_context([(file.parent, yaml.safe_load(file.read_text())) for file in there])
    except _ByProgram as error:
        raise NoCluster(
            f"{told} logs in by a program ({error}), which is not supported here; use one with a token or certificate"
        ) from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, ssl.SSLError) as error:
        raise NoCluster(f"{told} is no kubeconfig that can be used here ({error!r})") from error
    except OSError as error:
        raise NoCluster(f"no API server is known: {error.filename} cannot be read ({error.strerror})") from error


class _ByProgram(Exception):
    """A user logs in by a program; the text is the field that says so."""


_Config = tuple[Path, Mapping[str, Any]]
""" A kubeconfig, and the folder that its relative paths begin at. """


def _of_context(configs: Sequence[_Config]) -> Access:
    current = next((config["current-context"] for _, config in configs if config.get("current-context")), "")
    _, context = _named(configs, "context", current)
    place, cluster = _named(configs, "cluster", context["cluster"])
    folder, user = _named(configs, "user", context["user"])
    for field in ("exec", "auth-provider"):
        if field in user:
            raise _ByProgram(field)
    return Access(
        cluster["server"].rstrip("/"),
        _tls(place, cluster, folder, user) if cluster["server"].startswith("https:") else None,
        token=user.get("token", ""),
        token_file=folder / user["tokenFile"] if user.get("tokenFile") else None,
        proxy=cluster.get("proxy-url"),
    )


def _named(configs: Sequence[_Config], what: str, name: str) -> tuple[Path, Mapping[str, Any]]:
    for folder, config in configs:
        for entry in config.get(f"{what}s") or ():
            if entry["name"] == name:
                return folder, entry.get(what) or {}
    raise KeyError(f"{what} {name}")


def _tls(place: Path, cluster: Mapping[str, Any], folder: Path, user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _content(place, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(folder, user, "client-certificate"), _content(folder, user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile(prefix="orion-") as both:  # OpenSSL reads files; this one is gone at once
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _content(folder: Path, entry: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return (folder / entry[name]).read_bytes() if name in entry else None
