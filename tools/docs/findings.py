"""A fault in a page, printed as one line that editors can jump to."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One fault.

    Args:
        page: path of the file, from the root of the checkout.
        line: counted from 1.
        sentence: describes the fault.
    """

    page: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.sentence}"
