"""What is wrong in a page, as one line that an editor can jump to."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong.

    Args:
        page: the file, from the root of the checkout.
        line: from 1.
        sentence: what is wrong.
    """

    page: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.sentence}"
