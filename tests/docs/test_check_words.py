"""tools.check_words reads its list from docs/writing.md, and finds words in prose and in parts of names."""

from pathlib import Path

import pytest

from tools import check_words

PAGE = """# A page
## Words to avoid

| instead of | write |
|---|---|
| wombat, wombats | slot |
| lend to | pass |
| quux | again |
"""


def test_the_list_is_the_first_column_of_the_table() -> None:
    assert check_words.words(PAGE) == ["wombat", "wombats", "lend to", "quux"]


@pytest.mark.parametrize(
    "text", ["a wombat", "Wombats are", "wombat_count", "first_wombat", "theWombat", "lend to me", "QUUX"]
)
def test_a_word_and_a_part_of_a_name_are_found(text: str) -> None:
    assert check_words.pattern(check_words.words(PAGE)).search(text)


@pytest.mark.parametrize("text", ["wombatted", "unwombat", "quuxes", "lendto", "to lend together"])
def test_a_longer_word_is_not_found(text: str) -> None:
    assert not check_words.pattern(check_words.words(PAGE)).search(text)


def test_a_complaint_names_file_line_and_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("one\na wombat\n")
    complaints = list(check_words.found(["page.md", "gone.md"], check_words.pattern(["wombat"])))
    assert complaints == ["page.md:2: replace 'wombat' by the word that docs/writing.md lists for it"]
