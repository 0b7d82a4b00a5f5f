"""Parses the YAML of files that users write; each fault becomes one sentence with the file and the line."""

from pathlib import Path
from typing import Any

import yaml

from orion.errors import Unreadable


def parse(path: Path, text: str, loader: Any = yaml.SafeLoader) -> Any:
    """Return the document of a text.

    Args:
        path: the file, for the sentence.
        text: its content.
        loader: one of PyYAML's safe loaders.

    Raises:
        Unreadable: the text is no YAML.
    """
    try:
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise Unreadable(f"{path}{where}: this is no YAML ({problem}): correct it") from error
    except (ValueError, RecursionError) as error:  # a day that is in no calendar; a list in a list in a list ..
        raise Unreadable(f"{path}: this is no YAML ({error}): correct it") from error
