"""Merge patches (RFC 7386): the table of invalid shares contains them, and `orion cleanup` sends them."""

from typing import Any


def patched(plain: Any, patch: Any) -> Any:
    """Return a copy with a patch applied; null removes a member."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(plain) if isinstance(plain, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = patched(merged.get(name), value)
    return merged
