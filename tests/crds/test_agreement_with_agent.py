"""What a share may ask is what the node agent can be told: the same names, the same bounds."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from orion.crds.durations import Duration
from orion.crds.grant import ContainerGrant, GrantedPolicy
from orion.crds.policy import PolicyName, Priority
from orion.crds.quantities import Quantity
from orion.crds.share import GPUShareSpec, Linger, Tuning
from orion.hook import layout
from orion.node_agent.requests import WEIGHT_LEAST, WEIGHT_MOST, SetPolicyRequest
from orion.node_agent.settings import MINIMUM_SHARE_MAX, POLICY_KINDS, SLOWDOWN_MAX, PolicySettings

GPU = "GPU-00000000-0000-4000-8000-000000000000"


def test_policies_and_priorities_have_the_agents_names() -> None:
    assert {policy.value for policy in PolicyName} == set(POLICY_KINDS)
    assert {priority.name for priority in Priority} <= {role.name for role in layout.Role}


def test_a_granted_policy_is_a_request_to_the_agent() -> None:
    asked = set(SetPolicyRequest.model_fields) - {"gpu"}
    assert {name.removesuffix("_milli") for name in GrantedPolicy.model_fields} == asked


def test_a_containers_grant_names_what_the_page_holds() -> None:
    page = {name for name, *_ in layout.Grant._fields_}
    unheld = {"slots", "memory_request_bytes"}  # the placement's concern
    assert set(ContainerGrant.model_fields) - unheld <= page


@pytest.mark.parametrize(
    ("model", "field", "of", "asked", "unit"),
    [
        (GPUShareSpec, "max_slowdown", Quantity, "max_slowdown", Decimal(1)),
        (GPUShareSpec, "minimum_share", Quantity, "minimum_share", Decimal(1)),
        (Tuning, "sharing_cost", Quantity, "sharing_cost", Decimal(1)),
        (Tuning, "window", Duration, "window_us", Decimal(1_000)),
        (Tuning, "long_kernel", Duration, "long_kernel_us", Decimal(1_000)),
        (Tuning, "orion_2024_duration", Duration, "orion_2024_duration_us", Decimal(1_000)),
        (Linger, "floor", Duration, "linger_floor_us", Decimal(1_000)),
        (Linger, "ceiling", Duration, "linger_ceiling_us", Decimal(1_000)),
    ],
)
def test_bounds_are_the_agents(model: Any, field: str, of: Any, asked: str, unit: Decimal) -> None:
    info = model.model_fields[field]
    adapter: TypeAdapter[Any] = TypeAdapter(info.rebuild_annotation())
    steps = ("0", "0.001", "0.5", "0.501", "0.999", "1", "1.001", "100", "100.001") if of is Quantity else (
        "0s", "999ns", "1us", "49us", "50us", "1s", "1.000001s", "1m", "1m1us")  # fmt: skip
    for step in steps:
        value = of(step)
        figure = value.value / unit
        if figure:  # to the agent, 0 says as little as nothing does
            request = {"gpu": GPU, asked: float(figure) if of is Quantity else int(figure)}
            if of is Quantity or figure == int(figure):
                assert _takes(adapter, step) == _takes(TypeAdapter(SetPolicyRequest), request), step


def test_limits_of_shares_and_weights_are_the_agents() -> None:
    weight: TypeAdapter[Any] = TypeAdapter(GPUShareSpec.model_fields["weight"].rebuild_annotation())
    assert all(_takes(weight, str(edge)) for edge in (WEIGHT_LEAST, WEIGHT_MOST))
    assert not any(_takes(weight, str(edge)) for edge in (WEIGHT_LEAST * 0.9, WEIGHT_MOST * 1.1))
    assert (SLOWDOWN_MAX, MINIMUM_SHARE_MAX) == (100, 0.5)


def test_defaults_that_descriptions_name_are_the_agents() -> None:
    agent = PolicySettings()
    assert (Linger().floor.microseconds, Linger().ceiling.microseconds) == (
        agent.linger_floor_us, agent.linger_ceiling_us,
    )  # fmt: skip
    for model, field, default in (
        (Tuning, "window", f"{agent.window_us}us"),
        (Tuning, "long_kernel", f"{agent.long_kernel_us // 1_000}ms"),
        (Tuning, "reef_depth", str(agent.reef_depth)),
        (Tuning, "orion_2024_duration", f"{agent.orion_2024_duration_us}us"),
        (GPUShareSpec, "policy", agent.policy),
        (GPUShareSpec, "max_slowdown", f"{agent.max_slowdown:g}"),
        (GPUShareSpec, "minimum_share", f"{agent.minimum_share:g}"),
    ):
        assert f"Default: {default}" in " ".join(str(model.model_fields[field].description).split()), field


def _takes(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True
