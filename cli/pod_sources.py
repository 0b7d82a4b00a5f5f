"""Where `orion explain` finds a pod, the shares of its namespace and the GPUs: files, the cluster, or both.

A file may hold what makes pods (a Deployment, a Job) and the GPUShares that are to be applied along with it; shares of
files stand in for those of the same name in the cluster. The `kubernetes` client is used here, for it knows every way
in which people log in.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orion.cli.errors import Refused
from orion.crds import device as device_kind
from orion.crds import share as share_kind
from orion.crds.errors import Unreadable
from orion.crds.governing import Shares
from orion.crds.model import GROUP, VERSION
from orion.crds.share import GPUShare
from orion.operator.webhook.admitting import Cluster
from orion.operator.webhook.cluster_facts import device_memory, largest, readable_shares


@dataclass(frozen=True)
class Source:
    """A pod, and what admission would know beside it.

    Args:
        pod: plain.
        what: what it is called, for people, such as "Deployment web".
        namespace: its own.
        cluster: shares of that namespace, and GPUs.
    """

    pod: Mapping[str, Any]
    what: str
    namespace: str
    cluster: Cluster


def find(name: str | None, namespace: str | None, files: Iterable[Path], offline: bool) -> Source:
    """Return the pod that is meant.

    Args:
        name: of the pod, or of what makes it; None: the only one in the files.
        namespace: None: what the file says, else that of the current context.
        files: YAML or JSON; none: the cluster's pod.
        offline: whether the cluster is left out.

    Raises:
        Refused: there is no such pod, or it cannot be read.
    """
    documents = [document for file in files for document in _documents(file)]
    connection = None if offline else _Connection()
    if not documents:
        if connection is None or name is None:
            raise Refused("name a pod of the cluster, or give a file with -f", status=2)
        where = namespace or connection.namespace
        pod = connection.pod(name, where)
        return Source(pod, f"Pod {name}", where, connection.facts(where))
    what, pod = _choose(documents, name)
    said = (pod.get("metadata") or {}).get("namespace")
    where = namespace or said or (connection.namespace if connection else "default")
    known = connection.facts(where) if connection else Cluster()
    given = _shares(documents, where)
    others = [share for share in known.shares if share.metadata.name not in {each.metadata.name for each in given}]
    return Source(pod, what, where, Cluster(Shares([*others, *given]), known.largest_gpu))


# -- Files -------------------------------------------------------------------------------------------------------------


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        found = list(yaml.safe_load_all(file.read_text()))
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Refused(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    flat = [item for each in found if isinstance(each, dict) for item in (each.get("items") or [each])]
    return [each for each in flat if isinstance(each, dict)]


def template(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the pod that a document makes, None where it makes none."""
    if document.get("kind") == "Pod":
        return dict(document)
    spec = document.get("spec")
    if isinstance(spec, dict) and document.get("kind") == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    metadata = dict(template.get("metadata") or {})
    metadata.setdefault("namespace", (document.get("metadata") or {}).get("namespace"))
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {k: v for k, v in metadata.items() if v}}


def _choose(documents: Iterable[Mapping[str, Any]], name: str | None) -> tuple[str, dict[str, Any]]:
    found = []
    for document in documents:
        pod = template(document)
        if pod is not None:
            own = (document.get("metadata") or {}).get("name", "")
            found.append((own, f"{document.get('kind')} {own}".strip(), pod))
    meant = [(what, pod) for own, what, pod in found if name in (None, own)]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(what for _, what, _ in found) or "none"
    wanted = f"{name!r}" if name else "one pod"
    raise Refused(f"the files do not hold exactly {wanted} (or what makes it); they hold: {names}")


def _shares(documents: Iterable[Mapping[str, Any]], namespace: str) -> list[GPUShare]:
    found = []
    for document in documents:
        if document.get("kind") == share_kind.KIND.name and str(document.get("apiVersion", "")).startswith(GROUP):
            try:
                share = GPUShare.read_strictly(document, "GPUShare")
            except Unreadable as error:
                raise Refused(str(error)) from error
            if share.metadata.namespace in (None, namespace):
                found.append(share)
    return found


# -- Cluster -----------------------------------------------------------------------------------------------------------


class _Connection:
    """The cluster of the current context, or the one that this pod is in."""

    def __init__(self) -> None:
        try:
            import urllib3
            from kubernetes import client, config
        except ImportError as error:
            raise Refused("the cluster cannot be asked: install orion-gpu[cluster], or give --offline") from error
        settings = client.Configuration()
        self.namespace = "default"
        try:
            config.load_config(client_configuration=settings)
            _, context = config.list_kube_config_contexts()
            self.namespace = context["context"].get("namespace") or "default"
        except config.ConfigException as error:
            raise Refused(f"no cluster is configured ({error}); give --offline to go without") from error
        self._client, self._errors = client.ApiClient(settings), (client.ApiException, urllib3.exceptions.HTTPError)
        self._pods, self._objects = client.CoreV1Api(self._client), client.CustomObjectsApi(self._client)

    def pod(self, name: str, namespace: str) -> dict[str, Any]:
        def read() -> Any:  # as it is on the wire: the client's own models drop what they do not know
            return json.loads(self._pods.read_namespaced_pod(name, namespace, _preload_content=False).data)

        return self._ask(f"pod {name} in namespace {namespace}", read)

    def facts(self, namespace: str) -> Cluster:
        def shares() -> Any:
            return self._objects.list_namespaced_custom_object(GROUP, VERSION, namespace, share_kind.KIND.plural)

        def devices() -> Any:
            return self._objects.list_cluster_custom_object(GROUP, VERSION, device_kind.KIND.plural)

        memory = largest(device_memory(each) for each in self._ask("the GPUDevices", devices)["items"])
        return Cluster(Shares(readable_shares(self._ask("the GPUShares", shares)["items"])), memory)

    def _ask(self, what: str, question: Callable[[], Any]) -> dict[str, Any]:
        try:
            return dict(question())
        except self._errors as error:
            raise Refused(f"{what} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return why a question was refused; a proxy in the API server's place says it in any form."""
    try:
        said = json.loads(getattr(error, "body", None) or "null")
    except ValueError:
        said = None
    message = said.get("message") if isinstance(said, dict) else None
    return message or " ".join(str(error).split())[:200]
