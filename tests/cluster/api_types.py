"""The chart's definitions of the API types, in a test's control plane."""

import functools
from typing import Any

import yaml
from kubernetes import client

from orion.crds import generate
from tests.waiting import eventually

CONDITIONS = ("NamesAccepted", "Established")


def establish(api: client.ApiClient) -> None:
    """Apply all definitions, and wait until the API server serves them. Several workers may do this at once."""
    extensions = client.ApiextensionsV1Api(api)
    for path in sorted(generate.FOLDER.glob("*.yaml")):
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        name = body["metadata"]["name"]
        extensions.patch_custom_resource_definition(
            name,
            body,
            field_manager="orion-tests",
            force=True,
            field_validation="Strict",
            _content_type="application/apply-patch+yaml",
        )
        eventually(functools.partial(is_established, extensions, name))
    for kind in generate.KINDS:
        eventually(functools.partial(_is_served, api, kind.plural))


def status(extensions: client.ApiextensionsV1Api, name: str) -> dict[str, str]:
    """Return a definition's conditions by type."""
    found: Any = extensions.read_custom_resource_definition(name)
    return {each.type: each.status for each in found.status.conditions or ()}


def is_established(extensions: client.ApiextensionsV1Api, name: str) -> bool:
    """Return whether the API server accepts a definition. `kubectl wait` fails if the status is still empty."""
    found = status(extensions, name)
    return all(found.get(kind) == "True" for kind in CONDITIONS)


def _is_served(api: client.ApiClient, plural: str) -> bool:
    """Return whether objects of a kind can be listed: discovery follows a moment after Established."""
    try:
        client.CustomObjectsApi(api).list_cluster_custom_object("orion.gpu", "v1alpha1", plural, limit=1)
    except client.ApiException as error:
        if error.status != 404:
            raise
        return False
    return True
