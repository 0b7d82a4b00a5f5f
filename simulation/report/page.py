"""Makes one HTML page that a manager reads: the answer in a sentence, pictures, tables, assumptions.

The page holds its style and its pictures, and it names no other file or host, so it can be sent as one file. Jinja2
escapes all texts, because names come from users' files. Pictures are SVG that matplotlib drew; matplotlib escapes the
texts in them. Refused: scripts, and fonts or styles from the network.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

_PROLOGUE = re.compile(r'<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>| xmlns(:xlink)?="[^"]*"', re.DOTALL)


@dataclass(frozen=True)
class Picture:
    """A picture and the sentence below it.

    Attributes:
        title: the heading above the picture.
        svg: the picture, as matplotlib writes it.
        caption: what the picture shows, in a sentence.
    """

    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: the heading above the table.
        columns: the name of each column.
        rows: the cells of each row as text, one for each column.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def report(
    title: str, answer: str, pictures: Sequence[Picture], tables: Sequence[Table], assumptions: Sequence[str]
) -> str:
    """Return the page as HTML.

    Args:
        title: the heading of the page.
        answer: the answer to the reader's question, in one sentence.
        pictures: in the order in which the page shows them.
        tables: they follow the pictures.
        assumptions: sentences; they stand at the end.
    """
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    text = resources.files(__package__ or "").joinpath("page.html").read_text(encoding="utf-8")
    drawn = [Picture(each.title, inline(each.svg, f"p{at}-"), each.caption) for at, each in enumerate(pictures, 1)]
    page = environment.from_string(text)
    return page.render(title=title, answer=answer, pictures=drawn, tables=tables, assumptions=assumptions) + "\n"


def inline(svg: str, prefix: str) -> str:
    """Return an SVG document as an element of a page.

    HTML needs no namespaces. Each id gets the prefix, because ids are unique in a page.
    """
    text = _PROLOGUE.sub("", svg).replace("xlink:href", "href").strip()
    text = re.sub(r'(?<= )id="', f'id="{prefix}', text)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)
