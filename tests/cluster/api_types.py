"""The chart's definitions of the API types, in a test's control plane."""

from typing import Any

import yaml
from kubernetes import client

from orion.crds import generate
from orion.crds.model import API_VERSION
from tests.waiting import eventually


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
    plurals = {kind.plural for kind in generate.KINDS}
    eventually(lambda: plurals <= served(api, API_VERSION))


def served(api: client.ApiClient, api_version: str) -> set[str]:
    """Return which kinds of GROUP/VERSION clients can use, by their plurals."""
    try:
        found: Any = client.CustomObjectsApi(api).get_api_resources(*api_version.split("/"))
    except client.ApiException as error:
        if error.status != 404:
            raise
        return set()
    return {each.name for each in found.resources}
