"""Lists are parsed as json.loads would parse them, with pauses."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.api_server.lists import parsed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text() | st.just("items"), VALUES, max_size=4), st.sampled_from([None, 1]))
def test_a_list_is_parsed_as_any_json(plain: dict[str, Any], indent: int | None) -> None:
    for text in (json.dumps(plain, indent=indent), json.dumps(plain, separators=(",", ":"), ensure_ascii=False)):
        assert asyncio.run(parsed(text)) == plain


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '{"items"', '{"items":[', '{"items":[{}', '{"items":[{}]', "{]"]
)
def test_what_is_not_an_object_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"substring not found|Expecting value"):
        asyncio.run(parsed(text))


async def test_the_loop_goes_on_between_large_objects() -> None:
    text = json.dumps({"items": [{"annotations": {f"a{each}": "" for each in range(10_000)}}] * 20})
    parsing, passes = asyncio.create_task(parsed(text)), 0
    while not parsing.done():
        passes += 1
        await asyncio.sleep(0)
    assert passes >= 20
    assert (await parsing) == json.loads(text)
