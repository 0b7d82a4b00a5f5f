"""Kernel names: demangles them for people, and shortens them for formats that need short names."""

import ctypes
import re
from functools import cache

_OPENING, _CLOSING = "<({[", ">)}]"


@cache
def _library() -> ctypes.CDLL | None:
    """Return the C++ library, which can demangle. Nearly every machine has it; many lack `c++filt`."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        library.free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library


def demangle(name: str) -> str:
    """Return the demangled form of a C++ name; return other names, and all names without libstdc++, unchanged."""
    library = _library() if name.startswith("_Z") else None
    if library is None:
        return name
    address = library.__cxa_demangle(name.encode(errors="replace"), None, None, None)
    if not address:
        return name
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        library.free(address)


def base_name(name: str) -> str:
    """Return a demangled name without return type, template arguments and parameters."""
    kept: list[str] = []
    depth = 0
    for letter in name.replace("(anonymous namespace)", "anonymous"):
        if letter == "(" and depth == 0 and kept:
            break
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1] if words else name


def comparable(name: str) -> str:
    """Return a normal form of a name, in which the spellings of two demanglers are equal."""
    return re.sub(r"\s+|\((?:int|unsigned int|bool|long|unsigned long)\)", "", name)
