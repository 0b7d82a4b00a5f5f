"""Reads and writes GPUProfiles as YAML files; errors name the line.

``parse_profile(path.read_text(), str(path))`` reads a file. `profile.shared_gpu_rows` returns the rows for the policy.
"""

from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from orion.crds.errors import UNKNOWN_FIELD, location
from orion.crds.model import STRICTLY
from orion.crds.profile import GPUProfile
from orion.errors import Unreadable


def format_profile(profile: GPUProfile) -> str:
    """Return a profile as YAML, without fields that are None."""
    plain = profile.model_dump(mode="json", by_alias=True, exclude_none=True)
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=4096, allow_unicode=True)
    return text


def parse_profile(text: str, place: str) -> GPUProfile:
    """Return the profile in a YAML text.

    Args:
        text: the YAML.
        place: the file's name, for errors.

    Raises:
        Unreadable: the text is not a GPUProfile.
    """
    try:
        plain = yaml.load(text, Loader=_LOADER)
        return GPUProfile.model_validate(plain, context=STRICTLY)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise Unreadable(f"{place}:{mark.line + 1 if mark else 1}: expected YAML: {problem}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [part for part in location(first) if not (isinstance(part, str) and part.startswith("constrained-"))]
        field = ".".join(str(part) for part in path) or "the document"
        was = f", is {first['input']!r}"[:80] if first["type"] not in ("missing", "model_type", UNKNOWN_FIELD) else ""
        raise Unreadable(f"{place}:{_line(text, path)}: {field}: {first['msg']}{was}") from None


def _line(text: str, path: Sequence[int | str]) -> int:
    """Return the line (from 1) of the deepest part of the path that exists."""
    node: Any = yaml.compose(text, Loader=_LOADER)
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == part]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(yaml.SafeDumper):
    """Writes a list of numbers, such as a grid, on one line."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        numbers = bool(sequence) and all(isinstance(item, int | float) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=numbers or flow_style)
