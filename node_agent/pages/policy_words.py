"""A policy in the policy page: its number, and one word for each row of `hook/policy_table.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orion.hook import layout
from orion.hook.policy_table import TABLE

_INDEXES = {row.word: index for index, row in enumerate(TABLE.all_rows)}


@dataclass(frozen=True)
class Policy:
    """How a GPU's clients share it; times in nanoseconds, ratios in thousandths. The words are also attributes."""

    kind: int
    words: tuple[int, ...]
    """ The words in the order of the table's rows. """

    def __getattr__(self, name: str) -> int:
        """Return a word by its name."""
        if name not in _INDEXES:
            raise AttributeError(f"a policy has no {name}")
        return self.words[_INDEXES[name]]

    @property
    def name(self) -> str:
        """The policy's name."""
        return TABLE.name(self.kind)

    def changed(self, kind: int | None = None, words: Mapping[str, int] | None = None) -> "Policy":
        """Return a copy with another number or other words; the rest stays."""
        new = words or {}
        kept = tuple(new.get(row.word, word) for row, word in zip(TABLE.all_rows, self.words, strict=True))
        return Policy(self.kind if kind is None else kind, kept)

    def by_word(self) -> dict[str, int]:
        """Return the number and the words by name."""
        words = {row.word: word for row, word in zip(TABLE.all_rows, self.words, strict=True)}
        return {"kind": self.kind, **words}

    def values(self) -> dict[str, float]:
        """Return the words in people's units, by the fields' names."""
        return {row.name: row.from_page(word) for row, word in zip(TABLE.all_rows, self.words, strict=True)}

    def structure(self, sequence: int) -> bytes:
        """Return the policy as `struct orion_policy`."""
        filled: Any = layout.Policy(sequence=sequence, **self.by_word())
        return bytes(filled)


DEFAULT = Policy(TABLE.policies[0].number, tuple(row.to_page(row.default) for row in TABLE.all_rows))
""" The policy of a GPU if none is set. """
