"""What `make wheel` accepts in a release: `make test` makes none, so its rule is asked here."""

from pathlib import PurePosixPath

import pytest

from tools.check_wheel import may_ship


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("orion/cli/main.py", True),
        ("orion/hook/liborion_hook.so", True),
        ("orion/hook/sim/libcuda.so.1", True),
        ("orion/device_plugin/kubelet/LICENSE", True),  # of the interface that its stubs are made from
        ("orion/device_plugin/kubelet/api.proto", False),
        ("orion/hook/src/core/core.h", False),
        ("orion/hook/README.md", False),
        ("orion/hook/Makefile", False),
        ("measurements/overhead/hook_cost.py", False),
        ("testbed/cluster.py", False),
        ("tools/check_wheel.py", False),
    ],
)
def test_a_release_holds_programs_and_what_the_law_asks_for(name: str, may: bool) -> None:
    assert may_ship(PurePosixPath(name)) is may
