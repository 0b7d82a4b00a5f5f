"""Reads the YAML files that users write; each fault becomes one sentence with the file and the line."""

from pathlib import Path
from typing import Any

import yaml

from orion.errors import Unreadable

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
""" Written in C, for long files. The other loader names the line of a fault more exactly. """


def read(path: Path, wanted: str) -> Any:
    """Return the document of a file.

    Args:
        path: the file.
        wanted: what the file should hold, for the sentence, such as "a fleet".

    Raises:
        Unreadable: the file cannot be read, or is no YAML.
    """
    return parse(path, text(path, wanted))


def text(path: Path, wanted: str) -> str:
    """Return the text of a file.

    Raises:
        Unreadable: the file cannot be read, or is no text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}: give {wanted}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: this is no text: give {wanted}") from error


def parse(path: Path, text: str) -> Any:
    """Return the document of a text.

    Args:
        path: the file, for the sentence.
        text: its content.

    Raises:
        Unreadable: the text is no YAML.
    """
    try:
        try:
            return yaml.load(text, Loader=_FAST)
        except yaml.YAMLError:
            return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise Unreadable(f"{path}{where}: this is no YAML ({problem}): correct it") from error
    except (ValueError, RecursionError) as error:  # a day that is in no calendar; a list in a list in a list ..
        raise Unreadable(f"{path}: this is no YAML ({error}): correct it") from error
