"""Checks that each of our annotations, labels, resources and metrics on a page occurs in the code or the chart."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tools.docs.findings import Finding
from tools.docs.pages import ROOT, Page

PACKAGES = (
    "operator",
    "api_server",
    "device_plugin",
    "dra_driver",
    "injection",
    "node_agent",
    "node_pods",
    "errors",
    "atomic_files",
    "shutdown",
    "exposition",
    "hook",
    "inprocess",
    "crds",
    "planning",
    "simulation",
    "cli",
    "bench",
    "charts",
)
_SUFFIXES = {".py", ".c", ".h", ".yaml", ".json", ".tpl", ".proto", ".txt"}
_NAME = re.compile(r"(?<![\w./:-])(orion(?:\.gpu)?/[a-z][a-z-]*[a-z]|orion_[a-z][a-z_]*[a-z])(?![\w/.*-])")


def check(pages: Sequence[Page]) -> list[Finding]:
    """Return the names on pages that occur neither in the code nor in the chart."""
    return [
        Finding(page.name, line, f"neither the code nor the chart contains {name}")
        for page in pages
        for name, line in _named(page)
        if not _known(name, page.root)
    ]


def _named(page: Page) -> Iterator[tuple[str, int]]:
    texts = [(span.text, span.line) for span in page.spans]
    texts += [
        (text, block.line + number) for block in page.blocks for number, text in enumerate(block.text.split("\n"))
    ]
    for text, line in texts:
        for name in _NAME.findall(text):
            yield name, line


def _known(name: str, root: Path) -> bool:
    sources = _sources(root)
    if name in sources or (root / "charts" / name).exists():
        return True
    # Prometheus appends _total to the name of a counter, and _bucket, _sum and _count to that of a histogram; some code
    # adds a common prefix to several names.
    name = re.sub(r"_(total|bucket|sum|count|info|created|ratio|seconds|bytes)$", "", name)
    return name in sources or any(_written(part, sources) for part in _without_prefixes(name))


def _written(part: str, sources: str) -> bool:
    """Return whether the code contains this end of a name, to which it adds a prefix."""
    return f'}}_{part}"' in sources or ("_" in part and f'"{part}"' in sources)


def _without_prefixes(name: str) -> Iterator[str]:
    """Yield a metric's name without its first one to three words."""
    words = name.split("_")
    for start in range(1, min(len(words), 4)):
        yield "_".join(words[start:])


@cache
def _sources(root: Path = ROOT) -> str:
    files = (path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in _SUFFIXES)
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
