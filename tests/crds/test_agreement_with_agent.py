"""GPUShares and the node agent agree: the same names, the same bounds, the same defaults."""

import math
from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from orion.crds.decimals import Number
from orion.crds.descriptions import descriptions
from orion.crds.durations import Duration
from orion.crds.grant import ContainerGrant, GrantedPolicy
from orion.crds.policy import PolicyName, Priority
from orion.crds.share import Compute, GPUShareSpec, Linger, Tuning
from orion.hook import layout
from orion.hook.policy_table import RELEASE
from orion.node_agent.pages.policy_changes import PolicyChanges
from orion.node_agent.service.requests import PART_LEAST, PART_MOST

GPU = "GPU-00000000-0000-4000-8000-000000000000"


def test_policies_and_priorities_have_the_agents_names() -> None:
    assert {policy.value for policy in PolicyName} == set(RELEASE.names)
    assert {priority.name for priority in Priority} <= {role.name for role in layout.Role}


def test_a_granted_policy_is_a_request_to_the_agent() -> None:
    asked = {"policy", *(row.name for row in RELEASE.rows if row.share)}
    assert {name.removesuffix("_milli") for name in GrantedPolicy.model_fields} == asked


def test_a_containers_grant_has_the_names_of_the_page() -> None:
    page = {name for name, *_ in layout.Grant._fields_}
    not_in_page = {
        "slots",
        "memory_request_bytes",
        "memory_parks",
        "memory_evict_unparked",
    }  # placement and the agent alone use these fields
    not_in_page |= {"memory_wait_ms", "memory_unified"}  # in the page in nanoseconds, and with the kind of GPU
    assert set(ContainerGrant.model_fields) - not_in_page <= page


@pytest.mark.parametrize(
    ("model", "field", "of", "asked", "unit"),
    [
        (GPUShareSpec, "max_slowdown", Number, "max_slowdown", Decimal(1)),
        (Tuning, "sharing_cost", Number, "sharing_cost", Decimal(1)),
        (Tuning, "window", Duration, "window_us", Decimal(1_000)),
        (Tuning, "long_kernel", Duration, "long_kernel_us", Decimal(1_000)),
        (Linger, "floor", Duration, "linger_floor_us", Decimal(1_000)),
        (Linger, "ceiling", Duration, "linger_ceiling_us", Decimal(1_000)),
    ],
)
def test_bounds_are_the_agents(model: Any, field: str, of: Any, asked: str, unit: Decimal) -> None:
    info = model.model_fields[field]
    adapter: TypeAdapter[Any] = TypeAdapter(info.rebuild_annotation())
    steps: tuple[Any, ...] = (0, 0.001, 0.5, 0.501, 0.999, 1, 1.001, 100, 100.001) if of is Number else (
        "0s", "999ns", "1us", "49us", "50us", "1s", "1.000001s", "1m", "1m1us")  # fmt: skip
    for step in steps:
        value = of(step)
        figure = value.value / float(unit)
        if figure:  # for the agent, 0 means the same as an absent field
            request = {asked: float(figure) if of is Number else int(figure)}
            if of is Number or figure == int(figure):
                assert _takes(adapter, step) == _takes(TypeAdapter(PolicyChanges), request), step


@pytest.mark.parametrize("field", ["request", "limit"])
def test_bounds_of_gpu_time_are_the_agents(field: str) -> None:
    part: TypeAdapter[Any] = TypeAdapter(Compute.model_fields[field].rebuild_annotation())
    assert all(_takes(part, edge) for edge in (PART_LEAST, PART_MOST))
    assert not any(_takes(part, edge) for edge in (0, PART_LEAST * 0.9, PART_MOST * 1.1, math.nan, math.inf))


@pytest.mark.parametrize("part", [0.499, 0.5, 0.9, 1])
def test_bounds_of_the_request_of_hp_are_the_agents(part: float) -> None:
    share = {"priority": "hp", "compute": {"request": part}}
    assert _takes(TypeAdapter(GPUShareSpec), share) == _takes(TypeAdapter(PolicyChanges), {"request": part})


def test_defaults_that_descriptions_name_are_the_agents() -> None:
    row = {row.name: row for row in RELEASE.rows}
    assert (Linger().floor.microseconds, Linger().ceiling.microseconds) == (
        row["linger_floor_us"].default, row["linger_ceiling_us"].default,
    )  # fmt: skip
    for model, field, default in (
        (Tuning, "window", f"{row['window_us'].default:g}us"),
        (Tuning, "long_kernel", f"{row['long_kernel_us'].default / 1_000:g}ms"),
        (GPUShareSpec, "policy", RELEASE.names[0]),
        (GPUShareSpec, "max_slowdown", f"{row['max_slowdown'].default:g}"),
    ):
        assert f"Default: {default}" in " ".join(descriptions(model)[field].split()), field


def _takes(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True
