"""Refuses an output folder whose runs are not those of the settings to measure: runs that exist are not made again."""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from orion.bench import raw_data
from orion.errors import Invalid


def claim(folder: Path, settings: Mapping[str, BaseModel], **measured: Any) -> None:
    """Make the folder, or check the runs in it.

    Args:
        folder: the output folder.
        settings: by name, the settings to measure. The file of a run has its setting as `setting`.
        measured: what else such a file must say, unless it does not have the field.

    Raises:
        Invalid: the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"--output {folder} cannot be written: {error.strerror}; give another --output") from error
    for name, setting in settings.items():
        path = folder / f"{name}.json.gz"
        if path.exists() and not _is_of(path, setting, measured):
            raise Invalid(
                f"{path} is damaged, or of another scenario or kind of GPU, so its run cannot be reused: give another "
                "--output, or remove that file"
            )


def _is_of(path: Path, setting: BaseModel, measured: Mapping[str, Any]) -> bool:
    try:
        run = raw_data.read(path)
        same = type(setting).model_validate(run["setting"]) == setting
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error):
        return False
    return same and all(run.get(field, value) == value for field, value in measured.items())
