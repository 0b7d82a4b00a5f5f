"""Builds NVIDIA's CUDA samples as a suite: `python -m measurements.suites.samples --sources SAMPLES --output FOLDER`.

Each sample is a program that checks its own results. FOLDER gets the programs and one test file for each chapter of the
samples, so it is what `--sources` of the suite `cuda-samples` must be. Samples that draw, or that need a library which
few machines have, are left out; what does not build is named.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orion.bench.commandline import OneSentenceParser, counted, say

_RARE = re.compile(r"find_package\((OpenGL|GLUT|Vulkan|EGL|NVSCI|FreeImage|MPI)\b")
""" Libraries that draw, or that few machines have. """
_ARCHITECTURES = re.compile(r"set\(CMAKE_CUDA_ARCHITECTURES [^)]*\)")
_BUILD_SECONDS = 300.0
_TEST_FILE = "from sample_runs import cases_of\n\ntest_sample = cases_of(__file__)\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit status 0: something was built, 1: nothing was, 2: wrong options."""
    options = _parser().parse_args(arguments)
    sources = options.output / "sources"
    shutil.copytree(options.sources, sources, dirs_exist_ok=True)
    found = sorted(path.parent for path in sources.glob("Samples/*/*/CMakeLists.txt") if _is_built(path))
    if not found:
        print(f"measurements.suites.samples: {options.sources} has no Samples/*/*/CMakeLists.txt", file=sys.stderr)
        return 2
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        built = dict(zip(found, pool.map(lambda path: _build(path, options.architecture), found), strict=True))
    known = json.loads((sources / "test_args.json").read_text())
    chapters: dict[str, list[Any]] = {}
    for path, programs in built.items():
        for program in programs:
            chapters.setdefault(path.parent.name, []).extend(
                _runs(program, known.get(program.name, {}), options.output)
            )
    for chapter, runs in chapters.items():
        (options.output / f"{chapter}.json").write_text(json.dumps(runs))
        (options.output / f"test_{chapter}.py").write_text(_TEST_FILE)
    failed = [path.name for path, programs in built.items() if not programs]
    say(f"{len(found) - len(failed)} samples were built; not built: {', '.join(failed) or 'none'}")
    return 0 if chapters else 1


def _is_built(path: Path) -> bool:
    return "add_executable" in (text := path.read_text()) and not _RARE.search(text)


def _build(path: Path, architecture: str) -> list[Path]:
    """Build one sample; return its programs, none if it does not build."""
    lists = path / "CMakeLists.txt"
    lists.write_text(_ARCHITECTURES.sub(f"set(CMAKE_CUDA_ARCHITECTURES {architecture})", lists.read_text()))
    folder = path / "build"
    configure = ["cmake", "-G", "Ninja", "-S", str(path), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
    for command in (configure, ["ninja", "-k", "0", "-j", "2", "-C", str(folder)]):
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=_BUILD_SECONDS)
        except subprocess.TimeoutExpired:
            return []
    return sorted(each for each in folder.iterdir() if _is_program(each)) if folder.is_dir() else []


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF"


def _runs(program: Path, known: Mapping[str, Any], output: Path) -> Sequence[Mapping[str, Any]]:
    """Return the runs of a program that the samples' own list of arguments asks for."""
    if known.get("skip"):
        return []
    runs = [each for each in known.get("runs", [{"args": known.get("args", [])}]) if not each.get("skip")]
    return [{"program": str(program.relative_to(output)), "arguments": each.get("args", [])} for each in runs]


def _parser() -> argparse.ArgumentParser:
    parser = OneSentenceParser(
        prog="python -m measurements.suites.samples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sources", required=True, type=Path, help="the root of cuda-samples' sources")
    parser.add_argument("--output", required=True, type=Path, help="folder for the programs and test files")
    parser.add_argument("--architecture", default="native", help="of the GPU, such as 90 (default: of the one here)")
    parser.add_argument(
        "--workers", type=counted, default=os.cpu_count() or 1, help="samples at a time (default: cores)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
