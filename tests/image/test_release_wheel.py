"""Which files `make wheel` accepts in a release. `make test` builds no wheel, so this tests the rule alone."""

from pathlib import PurePosixPath

import pytest

from tools.check_wheel import may_ship


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("orion/cli/main.py", True),
        ("orion/hook/liborion_hook.so", True),
        ("orion/hook/sim/libcuda.so.1", True),
        ("orion/hook/sim/libnvidia-ml.so.1", True),
        ("orion/hook/orion-await-agent", True),
        ("orion/device_plugin/kubelet/LICENSE", True),  # of the interface from which the stubs are made
        ("orion/device_plugin/kubelet/api.proto", False),
        ("orion/hook/src/core/core.h", False),
        ("orion/hook/README.md", False),
        ("orion/hook/Makefile", False),
        ("measurements/overhead/hook_cost.py", False),
        ("testbed/cluster.py", False),
        ("tools/check_wheel.py", False),
    ],
)
def test_a_release_contains_programs_and_required_licences(name: str, may: bool) -> None:
    assert may_ship(PurePosixPath(name)) is may
