"""`python -m testbed`, which `make cluster` calls: which options go together, and what it prints at the end."""

import sys
from pathlib import Path

import pytest

from testbed import __main__ as command
from testbed import binaries, helm, orion_image
from testbed.access import Access


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, ...]]:
    """With which arguments a cluster would have been started."""
    calls: list[tuple[object, ...]] = []

    def up(_: Path, *arguments: object) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setattr(command, "up", up)
    monkeypatch.setattr(command, "default_folder", lambda: tmp_path)
    monkeypatch.setenv(binaries.KUBERNETES, binaries.USUAL)
    return calls


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["testbed", *words])
    return command.main()


@pytest.mark.parametrize(
    ("words", "allocation"),
    [((), ""), (("--chart",), "device-plugin"), (("--chart", "--allocation", "dra"), "dra")],
)
def test_the_chart_is_prepared_for_an_allocation(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[object, ...]], words: tuple[str, ...], allocation: str
) -> None:
    assert call(monkeypatch, "up", *words) == 0
    assert asked == [(1, 1, allocation)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--allocation", "dra"), "--allocation is a value of the chart: add --chart"),
        (("--chart", "--allocation", "dra", "--kubernetes", "1.34"), "needs Kubernetes 1.36"),
        (("--chart", "--allocation", "shares"), "invalid choice: 'shares'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[object, ...]],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    says: str,
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, "up", *words)
    assert says in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize(
    ("allocation", "printed"),
    [
        ("device-plugin", "install orion charts/orion --set simulatedGPUs=1"),
        ("dra", "install orion charts/orion --set allocation=dra --set simulatedGPUs=1"),
    ],
)
def test_the_printed_command_installs_the_chart_with_the_allocation(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    allocation: str,
    printed: str,
) -> None:
    monkeypatch.setattr(binaries, "find_all", lambda: {"kubectl": Path("kubectl")})
    monkeypatch.setattr(helm, "program", lambda _=None: Path("helm"))
    monkeypatch.setattr(orion_image, "build", lambda *_: tmp_path)
    access = Access.create(tmp_path, "https://127.0.0.1:1")
    command.make_installable(access.folder, allocation)
    command.teach(access)
    assert printed in capsys.readouterr().out
