"""`orion operator` and `orion webhook` say in one sentence what is wrong with what they were given."""

from pathlib import Path

import pytest

from orion.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["operator", "--kubeconfig", "/nonexistent"], "there is no file /nonexistent"),
        (["operator", "--address", "localhost"], "--address cannot be 'localhost': it must be HOST:PORT"),
        (["operator", "--address", "0.0.0.0:65536"], "--address cannot be '0.0.0.0:65536'"),
        (["operator", "--lease-name", "A B"], "--lease-name cannot be 'A B'"),
        (["webhook", "--listen", "9443"], "--listen is HOST:PORT"),
        (["webhook", "--health", "0.0.0.0:http"], "--health is HOST:PORT"),
        (["webhook", "--log-level", "loud"], "--log-level is debug, info, warning or error"),
    ],
)
def test_what_cannot_be_is_said(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_webhook_without_a_certificate_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("no: kubeconfig")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["webhook", "--kubeconfig", str(kubeconfig), "--certificates", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
