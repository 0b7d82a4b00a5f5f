"""The examples of docs/quota.md at a real API server: quota, policy and role work as the page says."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.cluster.admitted_pods import pod, refusal
from tests.cluster.conftest import Kubectl
from tests.waiting import eventually
from tools.docs import pages

pytestmark = pytest.mark.cluster

PAGE = pages.read(pages.ROOT / "docs" / "quota.md")
OBJECTS = [
    found for block in PAGE.blocks if block.info[:1] == ("yaml",) for found in yaml.safe_load_all(block.text) if found
]


def shown(kind: str) -> dict[str, Any]:
    """Return an object from the examples of docs/quota.md."""
    return next(dict(each) for each in OBJECTS if each.get("kind") == kind)


def error_of(kubectl: Kubectl, *arguments: str | Path) -> str:
    """Return kubectl's message about a refused request."""
    with pytest.raises(subprocess.CalledProcessError) as failure:
        kubectl(*arguments)
    return str(failure.value.stderr)


@pytest.fixture
def quota(api: client.ApiClient, admitted: str, kubectl: Kubectl) -> str:
    """The page's quota in a namespace with admission, counted by the controller; yields the namespace."""
    kubectl("apply", "-n", admitted, "-f", "-", given=shown("ResourceQuota"))
    core = client.CoreV1Api(api)
    eventually(lambda: core.read_namespaced_resource_quota("gpus", admitted).status.used)
    return admitted


def test_a_quota_counts_slots_however_a_pod_asks_for_them(
    api: client.ApiClient, quota: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(shown("Pod")))
    sentence = error_of(kubectl, "apply", "-n", quota, "-f", tmp_path / "pod.yaml")
    assert sentence.replace(f"{tmp_path}/", "").strip() in PAGE.text
    for number in range(4):
        kubectl("create", "-n", quota, "-f", "-", given=pod(f"train-{number}", "be"))
    eventually(lambda: "used: requests.orion.gpu/be=4" in refusal(api, quota, pod("one-more", "be")))
    assert re.search(r"requests.orion.gpu/be +4 +4", kubectl("describe", "quota", "gpus", "-n", quota))


def test_only_requests_of_slots_are_counted(api: client.ApiClient, admitted: str, kubectl: Kubectl) -> None:
    other = shown("ResourceQuota") | {"spec": {"hard": {"limits.orion.gpu/hp": "0", "pods": "9"}}}
    kubectl("create", "-n", admitted, "-f", "-", given=other)
    core = client.CoreV1Api(api)
    eventually(lambda: core.read_namespaced_resource_quota("gpus", admitted).status.used)
    assert refusal(api, admitted, pod("serve", "hp")) == ""


def test_the_shown_ceilings_refuse_the_shown_share_with_the_shown_sentence(
    api: client.ApiClient, admitted: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    marks = {"metadata": {"annotations": shown("Namespace")["metadata"]["annotations"]}}
    client.CoreV1Api(api).patch_namespace(admitted, marks)
    (tmp_path / "share.yaml").write_text(yaml.safe_dump(shown("GPUShare")))
    eventually(lambda: "above the ceiling be" in refusal(api, admitted, pod("x", "hp")))
    sentence = error_of(kubectl, "apply", "-n", admitted, "-f", tmp_path / "share.yaml")
    assert sentence.replace(admitted, "team").partition("denied request: ")[2].strip() in PAGE.text


def test_the_role_lets_people_see_shares_and_no_more(admitted: str, kubectl: Kubectl) -> None:
    user = f"system:serviceaccount:{admitted}:ci"
    kubectl("create", "-n", admitted, "-f", "-", given=shown("Role"))
    kubectl("create", "rolebinding", "ci", "-n", admitted, "--role=see-gpushares", f"--serviceaccount={admitted}:ci")
    eventually(lambda: _may(kubectl, "list", user, admitted) == "yes")
    assert _may(kubectl, "update", user, admitted) == "no"


def _may(kubectl: Kubectl, verb: str, user: str, namespace: str) -> str:
    try:
        return kubectl("auth", "can-i", verb, "gpushares", "-n", namespace, "--as", user).strip()
    except subprocess.CalledProcessError as failure:  # "no" is exit status 1
        return str(failure.stdout).strip()
