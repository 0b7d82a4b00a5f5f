"""Merge patches (RFC 7386): the table of invalid shares is written in them, and `orion cleanup` sends them."""

from typing import Any


def patched(plain: Any, patch: Any) -> Any:
    """Return a copy with a patch applied; null takes a member away."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(plain) if isinstance(plain, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = patched(merged.get(name), value)
    return merged
