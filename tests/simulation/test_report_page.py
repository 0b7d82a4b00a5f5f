"""The page that a manager reads: it escapes texts and names no other file or host."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("jinja2")
from orion.simulation.report import page, pictures


def _drawn() -> str:
    def plot(axes: Any) -> None:
        axes.plot([0, 1], [1, 2], label="<script>alert(1)</script>")
        axes.legend()

    return pictures.svg(plot)


PAGE = page.report(
    "Plan of <fleet>",
    "37 GPUs & not 52",
    [page.Picture("Use", _drawn(), "over a day"), page.Picture("Again", _drawn())],
    [page.Table("Services", ["name", "p99"], [["<b>chat</b>", "12 ms"]])],
    ["be runs beneath <hp>"],
)


def test_texts_are_escaped() -> None:
    assert "37 GPUs &amp; not 52" in PAGE
    assert "&lt;b&gt;chat&lt;/b&gt;" in PAGE
    assert "be runs beneath &lt;hp&gt;" in PAGE
    assert "<script" not in PAGE


def test_the_page_refers_to_nothing_outside() -> None:
    assert "http" not in PAGE
    assert not re.search(r"(src|href)=\"(?!#)", PAGE)
    assert "@import" not in PAGE


def test_each_id_occurs_once_and_each_reference_finds_its_id() -> None:
    ids = re.findall(r' id="([^"]*)"', PAGE)
    assert len(ids) == len(set(ids)) > 0
    assert set(re.findall(r'href="#([^"]*)"', PAGE)) | set(re.findall(r"url\(#([^)]*)\)", PAGE)) <= set(ids)


def test_every_element_of_the_page_is_closed() -> None:
    opened: list[str] = []

    class Check(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    check = Check()
    check.feed(PAGE)
    assert not opened


def test_the_same_drawing_gives_the_same_bytes() -> None:
    assert _drawn() == _drawn()
