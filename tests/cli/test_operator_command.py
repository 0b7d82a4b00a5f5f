"""`orion operator`, `webhook`, `agent` and `device-plugin` report an invalid value in one sentence."""

from pathlib import Path

import pytest

from orion.cli.main import main
from orion.operator.certificates import rotating
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.reconciler import serving


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["operator", "--kubeconfig", "/nonexistent"], "there is no file /nonexistent"),
        (["operator", "--address", "localhost"], "--address cannot be 'localhost': it must be HOST:PORT"),
        (["operator", "--address", "0.0.0.0:65536"], "--address cannot be '0.0.0.0:65536'"),
        (["agent", "--metrics-address", "x"], "--metrics-address cannot be 'x': it must be HOST:PORT"),
        (["agent", "--recovery-seconds", "-1"], "--recovery-seconds cannot be -1.0: it must be greater"),
        (["device-plugin", "--metrics-address", "x"], "--metrics-address cannot be 'x': it must match"),
        (["operator", "--lease-name", "A B"], "--lease-name cannot be 'A B'"),
        (["operator", "--namespace", "ok", "--namespace", "A B"], "--namespace cannot be 'A B'"),
        (["operator", "--certificates", "--webhook-service", "A B"], "--webhook-service cannot be 'A B'"),
        (["operator", "--certificates", "--webhook-secret", "/"], "--webhook-secret cannot be '/'"),
        (["operator", "--certificates", "--webhook-namespace", "-"], "--webhook-namespace cannot be '-'"),
        (["operator", "--certificates", "--webhook-configuration", ""], "--webhook-configuration cannot"),
        (["webhook", "--listen", "9443"], "--listen must be HOST:PORT"),
        (["webhook", "--health", "0.0.0.0:http"], "--health must be HOST:PORT"),
        (["webhook", "--runtime-class", "A B"], "--runtime-class cannot be 'A B'"),
        (["webhook", "--log-level", "loud"], "--log-level must be debug, info, warning or error"),
    ],
)
def test_an_invalid_argument_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.fixture
def certificates(monkeypatch: pytest.MonkeyPatch) -> list[CertificateSettings]:
    """The certificate settings that `orion operator` derives from its options; it ends before it asks an API server."""
    said: list[CertificateSettings] = []
    monkeypatch.setattr(rotating, "part", said.append)
    monkeypatch.setattr(serving, "run", lambda *_: None)
    return said


def test_the_certificates_are_those_of_the_named_webhook(certificates: list[CertificateSettings]) -> None:
    names = ["--webhook-namespace", "there", "--webhook-service", "hook", "--webhook-secret", "keys"]
    command = ["operator", "--lease-namespace", "here", "--certificates", *names]
    assert main([*command, "--webhook-configuration", "second"]) == 0
    (said,) = certificates
    assert (said.namespace, said.service, said.secret, said.configuration) == ("there", "hook", "keys", "second")
    assert said.leaf_names[0] == "hook.there.svc"


def test_an_unnamed_webhook_is_in_the_namespace_of_the_lease(certificates: list[CertificateSettings]) -> None:
    assert main(["operator", "--lease-namespace", "here", "--certificates"]) == 0
    assert certificates == [CertificateSettings(namespace="here")]


def test_certificates_are_managed_only_on_request(certificates: list[CertificateSettings]) -> None:
    assert main(["operator", "--lease-namespace", "here", "--webhook-service", "hook"]) == 0
    assert certificates == []


def test_a_webhook_without_a_certificate_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("no: kubeconfig")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["webhook", "--kubeconfig", str(kubeconfig), "--certificates", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
