"""The chart rejects an installation because of objects that a former release left or that a running release needs.

The tests use a real API server without nodes. They have their own control plane, because these objects are
cluster-wide.
"""

import pytest

from tests.chart.rendered_chart import NAMESPACE
from tests.chart.test_chart_beside_a_cluster import Installation, installation  # noqa: F401 - fixtures
from tests.cluster.conftest import own_control_plane, programs  # noqa: F401 - fixtures
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


def test_a_release_that_was_deleted_with_its_namespace_can_be_removed(installation: Installation) -> None:  # noqa: F811
    installation.helm("install", "orion", "--create-namespace", values={})
    # These values keep all names but change the pods' labels: selectors are immutable, and the Service's would change.
    for values in ({"nameOverride": "rio"}, {"nameOverride": "share", "fullnameOverride": "orion"}):
        renamed = installation.refused(values, command="upgrade")
        assert f"labelled app.kubernetes.io/name=orion and would be labelled {values['nameOverride']}" in renamed
    installation.upgradable({"fullnameOverride": "orion"})

    installation.core.delete_namespace(NAMESPACE)
    eventually(lambda: NAMESPACE not in [each.metadata.name for each in installation.core.list_namespace().items])
    refused = installation.refused({}, release="another")
    assert f'release "orion" of Orion was in namespace "{NAMESPACE}", which somebody deleted' in refused
    again = f"helm install orion charts/orion -n {NAMESPACE} --create-namespace"
    assert again in refused

    installation.helm("install", "orion", "--create-namespace", values={"crds": {"keep": False}})
    installation.helm("uninstall", "orion", "--no-hooks")
    assert not installation.admission.list_mutating_webhook_configuration().items
