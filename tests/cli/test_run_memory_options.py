"""The options of `orion run` about sharing a GPU's memory: what fits together, and what the agent is asked for."""

from typing import Any

import pytest

from orion.cli import parking_options
from orion.errors import Invalid

GIB = 1 << 30


def asked(given: dict[str, Any], *, is_hp: bool = False, limit: int | None = 8 * GIB) -> dict[str, Any]:
    return parking_options.for_run(given, is_hp, limit, has_rule=False)


def test_memory_that_moves_is_asked_for() -> None:
    found = asked({"unified": True, "memory_request": GIB})
    assert found == {
        "memory_request_bytes": GIB, "memory_parks": False, "memory_unified": True, "memory_wait_ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "is_hp", "limit", "sentence"),
    [
        ({"unified": True}, True, 8 * GIB, "--unified is for --priority be"),
        ({"unified": True, "park": True}, False, 8 * GIB, "exclude each other"),
        ({"unified": True}, False, None, "--unified needs --memory"),
        ({"memory_request": GIB}, False, 8 * GIB, "add --park or --unified"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], is_hp: bool, limit: int | None, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        asked(given, is_hp=is_hp, limit=limit)
