"""The objects and mounts for the webhook's certificate, for each value of certificates.source."""

import base64

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import PEM, Object


def certificate_volume(found: list[Object]) -> Object:
    """Return the webhook's volume that contains the certificate."""
    volumes = chart.pod_specs(found)["orion-webhook"]["volumes"]
    volume: Object = next(each["secret"] for each in volumes if each["name"] == "certificate")
    return volume


def test_an_upgrade_keeps_the_certificate_and_its_authority() -> None:
    found = chart.objects()
    secret = chart.one(found, "Secret", "orion-webhook-certificate")
    assert not {"data", "stringData"} & secret.keys()
    assert certificate_volume(found)["secretName"] == "orion-webhook-certificate"
    (webhook,) = chart.one(found, "MutatingWebhookConfiguration", "orion")["webhooks"]
    assert "caBundle" not in webhook["clientConfig"]
    assert "spec" not in chart.one(found, "Lease", "orion-operator")


def test_the_webhook_does_not_mount_the_authoritys_key() -> None:
    assert [each["key"] for each in certificate_volume(chart.objects())["items"]] == ["tls.crt", "tls.key"]


def test_certificates_of_cert_manager() -> None:
    found = chart.objects({"certificates": {"source": "cert-manager"}})
    certificate = chart.one(found, "Certificate", "orion-webhook")
    assert certificate["spec"]["secretName"] == certificate_volume(found)["secretName"]
    assert f"orion-webhook.{chart.NAMESPACE}.svc" in certificate["spec"]["dnsNames"]
    annotations = chart.one(found, "MutatingWebhookConfiguration", "orion")["metadata"]["annotations"]
    assert annotations["cert-manager.io/inject-ca-from"] == f"{chart.NAMESPACE}/{certificate['spec']['secretName']}"
    assert certificate["spec"]["issuerRef"]["name"] in chart.of_kind(found, "Issuer")
    assert not chart.of_kind(found, "Secret")
    own = {"certificates": {"source": "cert-manager", "certManager": {"issuerRef": {"name": "mine"}}}}
    assert not chart.of_kind(chart.objects(own), "Issuer")


def test_given_certificates() -> None:
    found = chart.objects({"certificates": {"source": "given", "given": {"secretName": "mine", "caBundle": PEM}}})
    assert certificate_volume(found)["secretName"] == "mine"
    (webhook,) = chart.one(found, "MutatingWebhookConfiguration", "orion")["webhooks"]
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]).decode() == PEM
    assert not chart.of_kind(found, "Secret")
