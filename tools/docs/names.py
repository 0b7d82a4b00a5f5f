"""Annotations, labels, resources and metrics of ours that a page names: each must occur in the code or the chart."""

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
    "node_agent",
    "exposition",
    "hook",
    "inprocess",
    "crds",
    "cli",
    "bench",
    "charts",
)
_SUFFIXES = {".py", ".c", ".h", ".yaml", ".json", ".tpl", ".proto", ".txt"}
_NAME = re.compile(r"(?<![\w./:-])(orion(?:\.gpu)?/[a-z][a-z-]*[a-z]|orion_[a-z][a-z_]*[a-z])(?![\w/.*-])")


def check(pages: Sequence[Page]) -> list[Finding]:
    """Return names of ours that nothing but pages knows."""
    return [
        Finding(page.name, line, f"nothing in the code or the chart is called {name}")
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
    # A counter has _total, a histogram _bucket, _sum and _count behind the name that the code gives it; some of the
    # code puts a common prefix before many names.
    name = re.sub(r"_(total|bucket|sum|count|info|created|ratio|seconds|bytes)$", "", name)
    return name in sources or any(_written(part, sources) for part in _without_prefixes(name))


def _written(part: str, sources: str) -> bool:
    """Return whether the code has this as the end of a name whose beginning is put before it."""
    return f'}}_{part}"' in sources or ("_" in part and f'"{part}"' in sources)


def _without_prefixes(name: str) -> Iterator[str]:
    """Yield a metric's name without `orion`, and without one and two words more."""
    words = name.split("_")
    for start in range(1, min(len(words), 4)):
        yield "_".join(words[start:])


@cache
def _sources(root: Path = ROOT) -> str:
    files = (path for room in PACKAGES for path in (root / room).rglob("*") if path.suffix in _SUFFIXES)
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
