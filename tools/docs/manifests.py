"""Checks the YAML of pages with the code that reads it in a cluster.

The models read objects of our kinds, strictly. The webhook's admission reads pods and workloads that make pods, with
the GPUShares of the same block. The schema checks the chart's values, and the parser checks configuration files of
nodes. A block fenced ```yaml refused must be rejected, and the block after it must contain the error.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from orion.cli.pod_sources import template
from orion.crds import node_configuration
from orion.crds.generate import KINDS
from orion.crds.governing import Shares
from orion.crds.model import GROUP
from orion.crds.share import GPUShare
from orion.errors import Unreadable
from orion.operator.webhook.admitting import Cluster, admit
from orion.operator.webhook.decisions import Outcome
from orion.operator.webhook.defaults import Defaults
from tools.docs import values
from tools.docs.findings import Finding
from tools.docs.pages import Block, Page

REFUSED = "refused"
_RESOURCES = {f"{GROUP}/hp", f"{GROUP}/be"}


def check(pages: Sequence[Page]) -> tuple[list[Finding], int]:
    """Return the faults in YAML, and the number of documents."""
    found, number = [], 0
    for page in pages:
        for block, after in zip_longest(page.blocks, page.blocks[1:]):
            if block.info[:1] != ("yaml",):
                continue
            sentences, documents = _faults(block, page.root)
            number += documents
            if REFUSED in block.info:
                sentences = _missing_refusals(sentences, after)
            found += [Finding(page.name, block.line, sentence) for sentence in sentences]
    return found, number


def _missing_refusals(sentences: Sequence[str], after: Block | None) -> list[str]:
    """Return the faults of a block that must be rejected, given the faults that were found in it."""
    if not sentences:
        return ["this YAML is marked as refused, but it is accepted"]
    shown = " ".join(after.text.split()) if after else ""
    missing = [sentence for sentence in sentences if " ".join(sentence.split()) not in shown]
    return [f"the block below does not say why it is refused: {sentence}" for sentence in missing]


def _faults(block: Block, root: Path) -> tuple[list[str], int]:
    try:
        documents = [each for each in yaml.safe_load_all(block.text) if each is not None]
    except yaml.YAMLError as error:
        return [f"invalid YAML: {' '.join(str(error).split())}"], 0
    if any(not isinstance(each, dict) for each in documents):
        return ["this YAML is a list or a scalar: show the object that contains it"], 0
    if len(documents) == 1 and "apiVersion" not in documents[0]:
        return _file_faults(block, documents[0], root), 1
    shares = [each for each in documents if each.get("kind") == "GPUShare"]
    return [fault for each in documents for fault in _object_faults(each, shares)], len(documents)


def _file_faults(block: Block, document: Mapping[str, Any], root: Path) -> list[str]:
    """Return the faults of a file that is not a Kubernetes object."""
    if "values" in block.info:
        return values.faults(dict(document), root)
    try:
        if document.get("version") == "v1":
            node_configuration.parse(block.text, "the file of nodes' settings")
            return []
        if "experiments" in document or "systems" in document:
            return []  # tests/bench/test_benchmarking_page.py reads scenarios, as `orion bench` does
        if "servers" in document:
            return []  # tests/simulation/test_planning_page.py reads cluster files, as `orion simulate cluster` does
        if "gpus" in document:
            return []  # tests/simulation/test_planning_page.py reads scenarios of services, and fleets
    except Unreadable as error:
        return [" ".join(str(error).split())]
    return ["unknown kind of YAML: fence the chart's values as ```yaml values"]


def _object_faults(document: Mapping[str, Any], shares: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    name = (document.get("metadata") or {}).get("name")
    if not document.get("kind") or not name:
        yield f"an object needs kind and metadata.name, but this one has {document.get('kind')} and {name}"
        return
    if document["apiVersion"].partition("/")[0] == GROUP:
        yield from _ours(document)
    elif document["kind"] == "ResourceQuota":
        yield from _quota(document)
    elif (pod := template(document)) is not None:
        yield from _pod(pod, shares)


def _ours(document: Mapping[str, Any]) -> Iterator[str]:
    kind = next((each for each in KINDS if each.name == document["kind"]), None)
    if kind is None:
        yield f"there is no kind {document['kind']} in {document['apiVersion']}"
        return
    try:
        kind.model.read_strictly(dict(document))
    except Unreadable as error:
        yield str(error)


def _quota(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a quota: for resources of device plugins, Kubernetes counts only requests.

    It counts objects with keys of the form `count/<plural>.<group>`.
    """
    for key in (document.get("spec") or {}).get("hard") or {}:
        prefix, _, resource = key.partition(".")
        if GROUP in key and not key.startswith("count/") and (prefix != "requests" or resource not in _RESOURCES):
            yield f"a quota cannot count {key}: requests.{GROUP}/hp and requests.{GROUP}/be can be counted"


def _pod(pod: Mapping[str, Any], shares: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    try:
        cluster = Cluster(Shares(GPUShare.read_strictly(dict(each)) for each in shares))
        decision = admit(pod, cluster, Defaults())
    except Unreadable:
        return  # the share's own check reports it
    except ValidationError as error:
        yield f"invalid pod: {' '.join(str(error).split())}"
        return
    if decision.outcome is Outcome.REFUSED:
        yield decision.sentence
