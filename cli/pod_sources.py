"""Where `orion explain` finds a pod, the shares of its namespace and the GPUs: files, the cluster, or both.

A file may contain pods, objects that make pods (a Deployment, a Job), and GPUShares. A GPUShare in a file replaces
the one of the same name in the cluster.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from orion.crds import device as device_kind
from orion.crds import share as share_kind
from orion.crds.annotations import PREFIX
from orion.crds.claims import CLAIM, CLAIMS, SHAPE, SLICES, path_in
from orion.crds.governing import Shares
from orion.crds.model import API_VERSION, GROUP
from orion.crds.share import GPUShare
from orion.errors import Invalid, NotFound, Unavailable, Unreadable
from orion.operator.webhook.admitting import Cluster
from orion.operator.webhook.cluster_facts import all_of, read_gpu, readable_shares


@dataclass(frozen=True)
class Source:
    """A pod, and the other facts that admission uses.

    Args:
        pod: plain.
        what: its name for people, such as "Deployment web".
        namespace: the pod's.
        cluster: shares of that namespace, and GPUs.
        misplaced: sentences about annotations in places where they have no effect.
        waits: sentences about what a pod of the cluster waits for.
    """

    pod: Mapping[str, Any]
    what: str
    namespace: str
    cluster: Cluster
    misplaced: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


def find(name: str | None, namespace: str | None, files: Iterable[Path], offline: bool) -> Source:
    """Return the pod that the user means.

    Args:
        name: of the pod, or of the object that makes it; None: the only one in the files.
        namespace: None: the file's, else the current context's.
        files: YAML or JSON, or folders of such files; none: the cluster's pod.
        offline: do not ask the cluster.

    Raises:
        OrionError: there is no such pod, or it is unreadable.
    """
    if name and ("/" in name or (name.endswith((".yaml", ".yml", ".json")) and Path(name).is_file())):
        raise Invalid(f"{name!r} is not the name of a pod: give a file with -f, a namespace with -n")
    documents = [document for each in files for file in _in_folder(each) for document in _documents(file)]
    connection = None if offline else _Connection()
    if not documents:
        if connection is None or name is None:
            raise Invalid("there is no pod to explain: name a pod of the cluster, or give a file with -f")
        where = namespace or connection.namespace
        pod = connection.pod(name, where)
        waits = tuple(connection.why_it_waits(pod, where))
        return Source(pod, f"Pod {name}", where, connection.facts(where), waits=waits)
    what, pod, misplaced = _choose(documents, name)
    stated = (pod.get("metadata") or {}).get("namespace")
    where = namespace or stated or (connection.namespace if connection else "default")
    known = connection.facts(where) if connection else Cluster()
    given = _shares(documents, where)
    others = [share for share in known.shares if share.metadata.name not in {each.metadata.name for each in given}]
    return Source(pod, what, where, Cluster(Shares([*others, *given]), known.gpus), misplaced)


# -- Files -------------------------------------------------------------------------------------------------------------


def _in_folder(path: Path) -> list[Path]:
    """Return the files of a folder that kubectl would read, or the one file."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml", ".json") and file.is_file())
    if not files:
        raise NotFound(f"{path} has no .yaml, .yml or .json file: name a file with -f")
    return files


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        found = list(yaml.safe_load_all(file.read_text()))
    except OSError as error:
        raise Unreadable(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Unreadable(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error
    flat = [item for each in found if isinstance(each, dict) for item in (each.get("items") or [each])]
    return [each for each in flat if isinstance(each, dict)]


def template(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the pod that a document makes; None if it makes none."""
    if document.get("kind") == "Pod":
        return dict(document)
    spec = document.get("spec")
    if isinstance(spec, dict) and document.get("kind") == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    if "containers" not in template["spec"]:
        return None  # a template of nodes, such as a NodePool's
    metadata = dict(template.get("metadata") or {})
    metadata.setdefault("namespace", (document.get("metadata") or {}).get("namespace"))
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {k: v for k, v in metadata.items() if v}}


def _misplaced(document: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence about each of Orion's annotations in a place where Orion does not read it."""
    kind_of_maker = document.get("kind")
    of_pod = _names(pod, "annotations")
    wanted = "metadata.annotations"
    found = [("label", name, "") for name in _names(pod, "labels")]
    if kind_of_maker != "Pod":
        job = "jobTemplate.spec." if kind_of_maker == "CronJob" else ""
        wanted = f"spec.{job}template.metadata.annotations"
        for kind in ("label", "annotation"):
            found += [(kind, name, f" of the {kind_of_maker} itself") for name in _names(document, f"{kind}s")]
    return tuple(
        f"{name} is {'an' if kind == 'annotation' else 'a'} {kind}{where} and has no effect there: Orion reads "
        f"annotations of pods, so write it to {wanted}"
        for kind, name, where in found
        if name.startswith(PREFIX) and name not in of_pod
    )


def _names(document: Mapping[str, Any], field: str) -> list[str]:
    """Return the names of the labels or annotations of a document, which may be invalid."""
    metadata = document.get("metadata")
    found = metadata.get(field) if isinstance(metadata, dict) else None
    return [str(name) for name in found] if isinstance(found, dict) else []


def has_claim(pod: Mapping[str, Any]) -> bool:
    """Return whether the webhook has made a ResourceClaim for a pod, which may be invalid."""
    return SHAPE in _names(pod, "annotations")


def _choose(documents: Iterable[Mapping[str, Any]], name: str | None) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    found = []
    for document in documents:
        pod = template(document)
        if pod is not None:
            own = (document.get("metadata") or {}).get("name", "")
            what = f"{document.get('kind')} {own}".strip()
            found.append((own, what, pod, _misplaced(document, pod)))
    meant = [(what, pod, misplaced) for own, what, pod, misplaced in found if name in (None, own)]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(what for _, what, *_ in found) or "none"
    called = f" called {name!r}" if name else ""
    what = "several pods" if meant else "no pod"
    hint = ", so give the name of one as well" if meant and not name else ""
    raise NotFound(f"the files have {what}{called} (or objects that make pods){hint}; they contain: {names}")


def _shares(documents: Iterable[Mapping[str, Any]], namespace: str) -> list[GPUShare]:
    found = []
    for document in documents:
        if document.get("kind") == share_kind.KIND.name and str(document.get("apiVersion", "")).startswith(GROUP):
            share = GPUShare.read_strictly(document, "GPUShare")
            if share.metadata.namespace in (None, namespace):
                found.append(share)
    return found


# -- Cluster -----------------------------------------------------------------------------------------------------------


class _Connection:
    """The cluster of the current context, or the one that this pod is in."""

    def __init__(self) -> None:
        from orion.api_server.credentials import find_access
        from orion.api_server.kubeconfigs import NoCluster

        try:
            self._access = find_access()
        except NoCluster as error:
            raise NotFound(f"no cluster is configured ({error}): configure one, or give --offline") from error
        self.namespace = self._access.namespace

    def pod(self, name: str, namespace: str) -> dict[str, Any]:
        what = f"pod {name} in namespace {namespace}"
        return self._ask({what: f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"})[0]

    def why_it_waits(self, pod: Mapping[str, Any], namespace: str) -> list[str]:
        """Return what a pod without a node lacks of its claim's GPUs; empty: it has a node, or no claim of Orion."""
        from orion.crds.joint_room import lacking_together
        from orion.crds.room_of_gpus import explained, gpus_of, lacking, requests_of, taken_by

        sources = {each["name"]: each for each in pod["spec"].get("resourceClaims") or ()}
        if CLAIM not in sources or pod["spec"].get("nodeName"):
            return []
        made = {each["name"]: each for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        name = sources[CLAIM].get("resourceClaimName") or made.get(CLAIM, {}).get("resourceClaimName")
        if not name:
            return ["its claim does not exist yet: kubectl describe pod shows why, such as a quota"]
        claim, slices = self._ask({
            f"claim {name}": path_in(quote(namespace), CLAIMS, quote(name)),
            "the ResourceSlices": SLICES,
        })  # fmt: skip
        if (claim.get("status") or {}).get("allocation"):
            return ["its claim has its GPUs, so something else keeps the pod from its node: see kubectl describe pod"]
        caution = []
        if any(len(each.get("requests") or ()) != 1 for each in claim["spec"]["devices"].get("constraints") or ()):
            caution.append("  the GPUs of several requests must have something in common, which was not checked here")
        try:
            (claims,) = self._ask({"the ResourceClaims": CLAIMS})
        except Unavailable:
            (claims,) = self._ask({"the claims": path_in(quote(namespace), CLAIMS)})
            caution += ["  only the claims of this namespace could be read: others may have taken more"]
        gpus = gpus_of(slices["items"], taken_by(claims["items"]))
        requests = requests_of(claim["spec"]["devices"])
        together = "" if lacking(gpus, requests) else lacking_together(gpus, requests)
        return [*explained(gpus, requests), *filter(None, [together]), *caution]

    def facts(self, namespace: str) -> Cluster:
        shares, devices = self._ask({
            "the GPUShares": f"/apis/{API_VERSION}/namespaces/{quote(namespace)}/{share_kind.KIND.plural}",
            "the GPUDevices": f"/apis/{API_VERSION}/{device_kind.KIND.plural}",
        })  # fmt: skip
        gpus = all_of(map(read_gpu, devices["items"]))
        return Cluster(Shares(readable_shares(shares["items"])), gpus)

    def _ask(self, paths: Mapping[str, str]) -> list[dict[str, Any]]:
        from orion.api_server.requests import ApiError, ApiServer

        async def work() -> list[dict[str, Any]]:
            server, found = ApiServer(self._access, "orion-explain"), []
            try:
                for what, path in paths.items():
                    try:
                        found.append(await server.get(path))
                    except (ApiError, ValueError) as error:  # a proxy instead of the API server may answer in any form
                        raise Unavailable(f"{what} cannot be read: {' '.join(str(error).split())[:300]}") from error
            finally:
                await server.close()
            return found

        return asyncio.run(work())
