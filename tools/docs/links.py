"""Checks that links and anchors have a target, and that every guide can be reached from the index of docs/."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from tools.docs.findings import Finding
from tools.docs.pages import Page, Span

INDEX = "docs/README.md"
_ELSEWHERE = ("https://", "http://", "mailto:")


def check(pages: Sequence[Page]) -> list[Finding]:
    """Return the faults in links between pages and to files; external addresses are not checked."""
    known = {page.name: page for page in pages}
    found = [
        Finding(page.name, link.line, sentence)
        for page in pages
        for link in page.links
        if (sentence := _fault(page, link, known))
    ]
    return found + _unreachable(known)


def _target(page: Page, link: Span) -> tuple[str, str]:
    """Return a link's target path, from the root, and its anchor; the path is ".." if it leaves the checkout."""
    path, _, anchor = unquote(link.text).partition("#")
    if not path:
        return page.name, anchor
    folder = (page.root / page.path).parent
    try:
        return (folder / path).resolve().relative_to(page.root.resolve()).as_posix(), anchor
    except ValueError:
        return "..", anchor


def _fault(page: Page, link: Span, known: Mapping[str, Page]) -> str:
    if link.text.startswith(_ELSEWHERE):
        return ""
    path, anchor = _target(page, link)
    if path == "..":
        return f"the link {link.text} leads out of the checkout"
    if path not in known and not (page.root / path).exists():
        return f"the link {link.text} leads nowhere: there is no {path}"
    if anchor and path in known and anchor not in known[path].anchors:
        return f"the link {link.text} leads nowhere: {path} has no heading #{anchor}"
    return ""


def _unreachable(known: Mapping[str, Page]) -> list[Finding]:
    """Return the guides that no chain of links reaches from the index."""
    if INDEX not in known:
        return []
    reached, ahead = {INDEX}, [known[INDEX]]
    while ahead:
        page = ahead.pop()
        for link in page.links:
            path, _ = _target(page, link)
            path = f"{path}/README.md" if f"{path}/README.md" in known else path
            if path in known and path not in reached:
                reached.add(path)
                ahead.append(known[path])
    return [
        Finding(name, 1, f"no link leads here from {INDEX}")
        for name in known
        if Path(name).parts[0] == "docs" and name not in reached
    ]
