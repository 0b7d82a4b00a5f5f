"""Decides which fields of a share are accepted but have no effect, and which mode of the GPU would enforce them."""

from collections.abc import Callable, Mapping
from typing import Any

from orion.crds.policy import Mode
from orion.crds.share import GPUShareSpec
from orion.crds.share_rules import member
from orion.operator.reconciler.usage import Usage

REASON_NO_POLICY = "NoPolicy"
REASON_MODE = {Mode.TIMESLICE: "ModeTimeslice", Mode.MPS: "ModeMPS"}

_NEVER: Mapping[str, Callable[[Any], bool]] = {
    "slo": lambda value: True,
    "smShare": lambda value: value < 1,
}
""" Fields that no policy of this version enforces, and whether a value asks for anything. """

_ONLY_IN: Mapping[Mode, Mapping[str, Callable[[Any], bool]]] = {
    Mode.MPS: {
        "maxSlowdown": lambda value: value > 1,
        "tuning.sharingCost": lambda value: value > 1,
        "tuning.overlapSMs": lambda value: True,
        "tuning.longKernel": lambda value: True,
    },
    Mode.TIMESLICE: {"tuning.beSlice": lambda value: True},
}
""" Fields that have an effect in one mode only. """


def not_enforced(spec: GPUShareSpec, found: Usage) -> tuple[str, str] | None:
    """Return the reason and the sentence of the condition NotEnforced; None: every field has its effect.

    Args:
        spec: the share's spec.
        found: the GPUs that its pods use. Without a GPU, a field that needs a mode does not count.
    """
    reasons, sentences = [], []
    if never := _set(spec, _NEVER):
        reasons.append(REASON_NO_POLICY)
        sentences.append(f"no policy of this version enforces {_listed(never)}, in any mode; remove {_them(never)}")
    for mode, fields in _ONLY_IN.items():
        asked = _set(spec, fields)
        others = sorted(name for name, device in found.devices.items() if device.status.mode not in (None, mode))
        if asked and others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            is_mode = found.devices[others[0]].status.mode
            reasons.append(REASON_MODE[is_mode] if is_mode else "")
            sentences.append(
                f"{_listed(asked)} {'has' if len(asked) == 1 else 'have'} an effect in mode {mode} only, and "
                f"{others[0]}{more} is in mode {is_mode}; set spec.mode of the GPUDevice to {mode}, or remove "
                f"{_them(asked)}"
            )
    return (reasons[0], "; ".join(sentences)) if reasons else None


def _set(spec: GPUShareSpec, fields: Mapping[str, Callable[[Any], bool]]) -> list[str]:
    """Return the fields that the share sets to a value that asks for something."""
    values = {path: member(spec, path) for path in fields}
    return [path for path, value in values.items() if value is not None and fields[path](value)]


def _listed(paths: list[str]) -> str:
    names = [f"spec.{path}" for path in paths]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _them(paths: list[str]) -> str:
    return "it" if len(paths) == 1 else "them"
