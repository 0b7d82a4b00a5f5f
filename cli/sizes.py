"""Amounts of memory: reads what people write, and formats what commands show."""

import typer

LEAST, MOST = 1 << 20, 1 << 44
""" Bytes; the bounds of a GPUShare's memory limit. """


def parse_size(text: str) -> int:
    """Return the bytes that ``8GiB``, ``8Gi``, ``512MB`` or ``1073741824`` means, as in a GPUShare.

    Raises:
        ValueError: with a sentence that names what is allowed.
    """
    from orion.crds.quantities import Memory

    try:
        size = Memory(text.replace(" ", "")).bytes
    except ValueError as error:
        raise ValueError(f"{text!r} {error}".partition("; not")[0]) from None
    if not LEAST <= size <= MOST:
        raise ValueError(f"{text!r} must be an amount of memory from 1MiB to 16TiB")
    return size


def of_option(text: str) -> int:
    """Parse the value of an option.

    Raises:
        typer.BadParameter: it is no amount of memory that is allowed.
    """
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def format_size(size: int) -> str:
    """Return an amount of bytes in the largest binary unit that does not exceed it, such as ``1.5 GiB``."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
