"""`orion certificates` reports invalid arguments in one sentence."""

import pytest

from orion.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["show", "--kubeconfig", "/nonexistent"], 2, "there is no file /nonexistent"),
        (["show", "--namespace", "No_Namespace"], 2, "--namespace cannot be 'No_Namespace'"),
        (["rotate", "--configuration", "Deployment/x"], 2, "--configuration cannot be 'Deployment/x'"),
        (["run", "--drop-retired-after", "-1"], 2, "--drop-retired-after"),
        (["run", "--look-every", "0"], 2, "--look-every cannot be"),
    ],
)
def test_an_invalid_argument_is_one_sentence(
    arguments: list[str],
    status: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["certificates", *arguments]) == status
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
