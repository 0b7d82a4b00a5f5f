"""The models reject the same shares as the API server and name the same field (the table is invalid_shares.yaml)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.crds.share import GPUShare
from orion.errors import Unreadable
from tests.crds.merge import patched

TABLE = yaml.safe_load((Path(__file__).parent / "invalid_shares.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TABLE["valid"])
def test_the_base_objects_of_the_table_are_valid(name: str) -> None:
    plain = TABLE["valid"][name]
    share = GPUShare.read_strictly(plain)
    assert GPUShare.read_strictly(share.plain()) == share


@pytest.mark.parametrize("case", TABLE["invalid"], ids=lambda case: case["name"])
def test_an_invalid_share_is_refused_with_its_field(case: dict[str, Any]) -> None:
    with pytest.raises(Unreadable) as refused:
        GPUShare.read_strictly(patched(TABLE["valid"][case["of"]], case["patch"]))
    assert case["field"] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_table_is_long_and_its_names_are_unique() -> None:
    names = [case["name"] for case in TABLE["invalid"]]
    assert len(names) == len(set(names)) >= 50
