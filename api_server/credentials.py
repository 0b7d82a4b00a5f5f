"""Finds the API server: from the kubeconfig option, else the pod's service account, else $KUBECONFIG.

Users of a kubeconfig authenticate with a token, a certificate, or a credential plugin. An `auth-provider` is rejected,
because Kubernetes itself has removed it.

Why not a library: `kubernetes.config` (37.0.2, tried) fails our tests. If several files set a current context,
the library takes the last one and kubectl takes the first. So `orion cleanup` would clean another cluster than the one
that kubectl shows. If a log-in fails, the library logs the failure and sends anonymous requests. Invalid entries cause
an AttributeError, a TypeError, or a token that is the text of a Python object. The library reads a `tokenFile` only
once, and leaves private keys in files until the process ends. With its dependencies it adds 131 MB to an install.
"""

import base64
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orion.api_server.access import Access, load_pair
from orion.api_server.credential_programs import CredentialProgram
from orion.api_server.exec_credentials import ProgramEntry
from orion.api_server.impersonation import impersonation
from orion.api_server.kubeconfigs import Entry, Kubeconfigs, NoCluster

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
""" The name of the extension in a kubeconfig's cluster entry that holds data for credential plugins. """


def find_access(kubeconfig: Path | None = None) -> Access:
    """Return the access that `kubeconfig` configures, else the pod's service account, else $KUBECONFIG.

    Raises:
        NoCluster: no API server is configured, or its configuration is unusable.
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
        tls = _as_kubectl(ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt"))
        file = SERVICE_ACCOUNT / "namespace"
        namespace = file.read_text().strip() if file.exists() else "default"
    except OSError as error:
        raise NoCluster(f"this pod has no service account: {error}") from error
    return Access(f"https://{host}:{port}", tls, token_file=SERVICE_ACCOUNT / "token", namespace=namespace)


def _as_kubectl(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let a context trust the certificates that kubectl trusts.

    Each certificate that is given counts as an authority, also without the one that has signed it. Python 3.13 demands
    extensions by default that the certificates of some clusters lack.
    """
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    return context


# -- Kubeconfigs -------------------------------------------------------------------------------------------------------


def _read_kubeconfig(files: Sequence[Path]) -> Access:
    configs = Kubeconfigs(files)
    context = configs.current()
    cluster = configs.named("cluster", context.needed("cluster"), context)
    user = configs.named("user", context.needed("user"), context)
    server, token, token_file = cluster.needed("server").rstrip("/"), user.text("token"), user.text("tokenFile")
    return Access(
        server,
        _tls(cluster, user) if server.startswith("https:") else None,
        cluster.text("tls-server-name"),
        token=token,
        token_file=user.file.parent / token_file if token_file else None,
        proxy=cluster.text("proxy-url") or None,
        log_in=None if token or token_file else _program(cluster, user),
        namespace=context.text("namespace") or "default",
        acts_as=impersonation(user),
    )


def _tls(cluster: Entry, user: Entry) -> ssl.SSLContext:
    authority = cluster.content("certificate-authority")
    try:
        context = _as_kubectl(ssl.create_default_context(cadata=authority.decode() if authority else None))
    except (ssl.SSLError, ValueError) as error:
        raise NoCluster(f"certificate-authority of {cluster} is not a certificate in PEM") from error
    if cluster.fields.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if bool(certificate) != bool(key):
        raise NoCluster(f"{user} has only one of client-certificate and client-key")
    if certificate:
        try:
            load_pair(context, certificate, key)
        except ssl.SSLError as error:
            raise NoCluster(f"client-certificate and client-key of {user} are not a pair in PEM") from error
    return context


def _program(cluster: Entry, user: Entry) -> CredentialProgram | None:
    if "auth-provider" in user.fields:
        raise NoCluster(
            f"{user} logs in by an auth-provider, which Kubernetes no longer supports: generate the kubeconfig again "
            "with the command that created it"
        )
    if not user.fields.get("exec"):
        return None
    try:
        entry = ProgramEntry.model_validate(user.fields["exec"])
    except ValidationError as error:
        place = ".".join(map(str, ("exec", *error.errors()[0]["loc"])))
        raise NoCluster(
            f"{place} of {user} is unusable: generate the kubeconfig again with the command that created it"
        ) from error
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if entry.interactive_mode == "Always" and not terminal:
        raise NoCluster(
            f"{entry.command}, which logs in {user}, asks for a terminal (interactiveMode): run this in one"
        )
    info = _cluster_info(cluster) if entry.provide_cluster_info else None
    return CredentialProgram(entry, str(user), user.file.parent, info, terminal)


def _cluster_info(cluster: Entry) -> dict[str, Any]:
    """Return the description of the cluster for a plugin: the kubeconfig's fields, with the authority inline."""
    copied = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
    info = {field: cluster.fields[field] for field in copied if cluster.fields.get(field)}
    if authority := cluster.content("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for each in cluster.fields.get("extensions") or ():
        if isinstance(each, dict) and each.get("name") == _EXEC_EXTENSION:
            info["config"] = each.get("extension")
    return info
