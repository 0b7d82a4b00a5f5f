"""The operator makes the webhook's certificates beside its other work, with the rights that the chart ships."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.cluster import api_types, certificates_process, operator_process
from tests.cluster.certificates_process import Certificates
from tests.cluster.operator_process import running_operator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


def of_the_chart_as_well(role: dict[str, Any]) -> None:
    """Allow access to the chart's configuration, too: the operator reads it, although the test does not create it."""
    for rule in role["rules"]:
        if "mutatingwebhookconfigurations" in rule["resources"]:
            rule["resourceNames"].append("orion")


def test_the_operator_makes_and_rotates_the_certificates(
    api: client.ApiClient, namespace: str, kubeconfig_for: Callable[..., Path], tmp_path: Path
) -> None:
    api_types.establish(api)
    user = f"system:serviceaccount:{namespace}:orion-operator"
    operator_process.grant_rights(api, user, namespace)
    certificates_process.grant_rights(api, user, namespace, of_the_chart_as_well)
    kubeconfig = kubeconfig_for(user)
    certificates = Certificates(api, namespace, kubeconfig, tmp_path)
    mine = ("--namespace", namespace, "--lease-namespace", namespace, "--certificates")
    with running_operator(kubeconfig, tmp_path, *mine, serves=False) as operator:
        eventually(lambda: certificates.state.leaf is not None)
        first = certificates.state.authority
        assert first is not None
        # The operator reports an authority once it has written it, so the Secret can be read before the metric.
        reported = 'orion_certificates_end_timestamp_seconds{what="authority"}'
        assert eventually(lambda: operator.metrics().get(reported)) == first.ends.timestamp()
        assert "a new authority is made" in certificates.ask("rotate")
        eventually(lambda: operator.metrics()["orion_certificates_retired_authorities"] == 1)
