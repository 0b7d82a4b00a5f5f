"""YAML of pages: it is read by what reads it in a cluster.

Objects of our kinds by the models, strictly; pods, and what makes pods, by the webhook's own admission, with the
GPUShares of the same block; the chart's values by its schema; files of nodes' settings by their reader.
A block fenced ```yaml refused must be refused, and the block after it must hold the sentence that says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from orion.cli.pod_sources import template
from orion.crds import node_configuration
from orion.crds.errors import Unreadable
from orion.crds.generate import KINDS
from orion.crds.governing import Shares
from orion.crds.model import GROUP
from orion.crds.share import GPUShare
from orion.operator.webhook.admitting import Cluster, admit
from orion.operator.webhook.decisions import Outcome
from orion.operator.webhook.defaults import Defaults
from tools.docs import values
from tools.docs.findings import Finding
from tools.docs.pages import Block, Page

REFUSED = "refused"
_RESOURCES = {f"{GROUP}/hp", f"{GROUP}/be"}


def check(pages: Sequence[Page]) -> tuple[list[Finding], int]:
    """Return what is wrong with YAML, and how many documents there are."""
    found, number = [], 0
    for page in pages:
        for block, after in zip_longest(page.blocks, page.blocks[1:]):
            if block.info[:1] != ("yaml",):
                continue
            sentences, documents = _faults(block, page.root)
            number += documents
            if REFUSED in block.info:
                sentences = _unrefused(sentences, after)
            found += [Finding(page.name, block.line, sentence) for sentence in sentences]
    return found, number


def _unrefused(sentences: Sequence[str], after: Block | None) -> list[str]:
    """Return what is wrong with a block that must be refused, given what was found wrong in it."""
    if not sentences:
        return ["this YAML is said to be refused, and is not"]
    shown = " ".join(after.text.split()) if after else ""
    unsaid = [sentence for sentence in sentences if " ".join(sentence.split()) not in shown]
    return [f"the block below does not say why it is refused: {sentence}" for sentence in unsaid]


def _faults(block: Block, root: Path) -> tuple[list[str], int]:
    try:
        documents = [each for each in yaml.safe_load_all(block.text) if each is not None]
    except yaml.YAMLError as error:
        return [f"this is no YAML: {' '.join(str(error).split())}"], 0
    if any(not isinstance(each, dict) for each in documents):
        return ["this YAML is a list or a word; say what it belongs to"], 0
    if len(documents) == 1 and "apiVersion" not in documents[0]:
        return _file_faults(block, documents[0], root), 1
    shares = [each for each in documents if each.get("kind") == "GPUShare"]
    return [fault for each in documents for fault in _object_faults(each, shares)], len(documents)


def _file_faults(block: Block, said: Mapping[str, Any], root: Path) -> list[str]:
    """Return what is wrong with a file that is no object."""
    if "values" in block.info:
        return values.faults(dict(said), root)
    try:
        if said.get("version") == "v1":
            node_configuration.parse(block.text, "the file of nodes' settings")
            return []
        if "experiments" in said or "systems" in said:
            return []  # tests/bench/test_benchmarking_page.py reads scenarios, as `orion bench` does
    except Unreadable as error:
        return [" ".join(str(error).split())]
    return ["nothing says what this YAML is: fence the chart's values as ```yaml values"]


def _object_faults(said: Mapping[str, Any], shares: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    name = (said.get("metadata") or {}).get("name")
    if not said.get("kind") or not name:
        yield f"an object needs kind and metadata.name, and this is {said.get('kind')} {name}"
        return
    if said["apiVersion"].partition("/")[0] == GROUP:
        yield from _ours(said)
    elif said["kind"] == "ResourceQuota":
        yield from _quota(said)
    elif (pod := template(said)) is not None:
        yield from _pod(pod, shares)


def _ours(said: Mapping[str, Any]) -> Iterator[str]:
    kind = next((each for each in KINDS if each.name == said["kind"]), None)
    if kind is None:
        yield f"there is no kind {said['kind']} in {said['apiVersion']}"
        return
    try:
        kind.model.read_strictly(dict(said))
    except Unreadable as error:
        yield str(error)


def _quota(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a quota: of resources that a device plugin offers, only requests are counted.

    Objects are counted by `count/<plural>.<group>`.
    """
    for key in (said.get("spec") or {}).get("hard") or {}:
        prefix, _, resource = key.partition(".")
        if GROUP in key and not key.startswith("count/") and (prefix != "requests" or resource not in _RESOURCES):
            yield f"a quota cannot count {key}: requests.{GROUP}/hp and requests.{GROUP}/be are what there is"


def _pod(pod: Mapping[str, Any], shares: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    try:
        cluster = Cluster(Shares(GPUShare.read_strictly(dict(each)) for each in shares))
        decision = admit(pod, cluster, Defaults())
    except Unreadable:
        return  # said of the share itself
    except ValidationError as error:
        yield f"this is no pod: {' '.join(str(error).split())}"
        return
    if decision.outcome is Outcome.REFUSED:
        yield decision.sentence
