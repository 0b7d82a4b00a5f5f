"""A description as a CDI specification."""

from pathlib import Path

from orion.injection.cdi import add_hook, specification
from orion.injection.description import Description, DeviceNode, Mount


def test_a_description_becomes_the_edits_of_one_device() -> None:
    given = Description(
        [Mount(Path("/node/lib"), "/lib"), Mount(Path("/node/state"), "/state", read_only=False)],
        {"GPUS": "GPU-1,GPU-2"},
        [DeviceNode(Path("/driver/dev/nvidia0"), "/dev/nvidia0")],
        ["nvidia.com/gpu=GPU-1"],
    )
    (device,) = specification("orion.gpu/claim", {"uid-request": given})["devices"]
    assert device["name"] == "uid-request"
    assert device["containerEdits"] == {
        "env": ["GPUS=GPU-1,GPU-2"],
        "mounts": [
            {"hostPath": "/node/lib", "containerPath": "/lib", "options": ["rbind", "ro", "nosuid", "nodev"]},
            {"hostPath": "/node/state", "containerPath": "/state", "options": ["rbind", "rw", "nosuid", "nodev"]},
        ],
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/driver/dev/nvidia0", "permissions": "rw"}],
    }


def test_a_device_without_device_nodes_has_none() -> None:
    # CDI's schema rejects an empty list.
    (device,) = specification("orion.gpu/claim", {"one": Description()})["devices"]
    assert "deviceNodes" not in device["containerEdits"]


def test_a_hook_is_added_to_one_device() -> None:
    before = specification("orion.gpu/claim", {"one": Description(), "two": Description()})
    one, two = add_hook(before, "two", "createRuntime", ["/bin/wait", "5"], 10)["devices"]
    assert one == before["devices"][0]
    assert two["containerEdits"]["hooks"] == [
        {"hookName": "createRuntime", "path": "/bin/wait", "args": ["/bin/wait", "5"], "timeout": 10}
    ]
    assert "hooks" not in before["devices"][1]["containerEdits"]
