"""A policy as the policy page has it: its number, and a word for each row of `hook/policy_table.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orion.hook import layout
from orion.hook.policy_table import TABLE

_PLACES = {row.word: place for place, row in enumerate(TABLE.all_rows)}


@dataclass(frozen=True)
class Policy:
    """How a GPU's clients share it; times in nanoseconds, ratios in thousandths. The words are attributes, too."""

    kind: int
    words: tuple[int, ...]
    """ In the order of the table's rows. """

    def __getattr__(self, name: str) -> int:
        """Return a word by its name."""
        if name not in _PLACES:
            raise AttributeError(f"a policy has no {name}")
        return self.words[_PLACES[name]]

    @property
    def name(self) -> str:
        """What people call the policy."""
        return TABLE.name(self.kind)

    def changed(self, kind: int | None = None, words: Mapping[str, int] | None = None) -> "Policy":
        """Return it with another number or other words; what is not named stays."""
        new = words or {}
        kept = tuple(new.get(row.word, word) for row, word in zip(TABLE.all_rows, self.words, strict=True))
        return Policy(self.kind if kind is None else kind, kept)

    def by_word(self) -> dict[str, int]:
        """Return number and words by name."""
        words = {row.word: word for row, word in zip(TABLE.all_rows, self.words, strict=True)}
        return {"kind": self.kind, **words}

    def values(self) -> dict[str, float]:
        """Return the words as people give them, by the fields' names."""
        return {row.name: row.from_page(word) for row, word in zip(TABLE.all_rows, self.words, strict=True)}

    def structure(self, sequence: int) -> bytes:
        """Return it as `struct orion_policy`."""
        filled: Any = layout.Policy(sequence=sequence, **self.by_word())
        return bytes(filled)


DEFAULT = Policy(TABLE.policies[0].number, tuple(row.to_page(row.default) for row in TABLE.all_rows))
""" What holds where nobody says anything. """
