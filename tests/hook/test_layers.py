"""`tools/hook_layers.py` refuses an include or a call from a lower folder of the hook to a higher one."""

import subprocess
from pathlib import Path

import pytest

from tools import hook_layers


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Two folders, `upper` above `lower`, with one file each, which use nothing of each other."""
    for folder in ("upper", "lower"):
        (tmp_path / "src" / folder).mkdir(parents=True)
    (tmp_path / "src" / "layers.txt").write_text("# a comment\nupper\n\nlower\n")
    (tmp_path / "src" / "upper" / "top.c").write_text("int top(void) { return 0; }\n")
    (tmp_path / "src" / "lower" / "base.c").write_text("int base(void) { return 0; }\n")
    return tmp_path / "src"


def check(sources: Path) -> int:
    build = sources.parent / "build"
    for source in sources.glob("*/*.c"):
        target = build / "CMakeFiles" / "hook_objects.dir" / "src" / f"{source.relative_to(sources)}.o"
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-c", f"-I{sources}", str(source), "-o", str(target)], check=True)
    return hook_layers.main([str(build), "--sources", str(sources)])


def test_a_call_to_a_lower_layer_passes(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "lower" / "base.h").write_text("int base(void);\n")
    (sources / "upper" / "top.c").write_text('#include "lower/base.h"\nint top(void) { return base(); }\n')
    assert check(sources) == 0
    assert capsys.readouterr().out == ""


def test_an_include_of_a_higher_layer_is_refused(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "upper" / "top.h").write_text("struct top;\n")
    (sources / "lower" / "base.c").write_text('#include "upper/top.h"\nint base(void) { return 0; }\n')
    assert check(sources) == 1
    sentence = "hook/src/lower/base.c includes upper/top.h: upper/ lies above lower/ (hook/src/layers.txt)\n"
    assert capsys.readouterr().out == sentence


def test_a_call_to_a_higher_layer_without_an_include_is_refused(
    sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sources / "lower" / "base.c").write_text("int top(void);\nint base(void) { return top(); }\n")
    assert check(sources) == 1
    assert capsys.readouterr().out == (
        "hook/src/lower/base.c uses top of upper/top.c: upper/ lies above lower/ (hook/src/layers.txt)\n"
    )


def test_folders_of_one_layer_use_nothing_of_each_other(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "layers.txt").write_text("upper lower\n")
    (sources / "upper" / "top.c").write_text("int base(void);\nint top(void) { return base(); }\n")
    assert check(sources) == 1
    assert "lower/ lies beside upper/" in capsys.readouterr().out


def test_a_folder_needs_a_layer(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "layers.txt").write_text("upper\n")
    (sources / "upper" / "top.c").write_text("int base(void);\nint top(void) { return base(); }\n")
    assert check(sources) == 1
    assert "hook/src/lower has no layer" in capsys.readouterr().out
