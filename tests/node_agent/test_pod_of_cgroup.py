"""The pod of a process, by the path of its cgroup and that of the agent, however a container names its own cgroups."""

import pytest

from orion.node_agent.processes.cgroup_folders import paths
from orion.node_agent.processes.pod_cgroups import pod_uid

POD = "5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"
OTHER = "ffffffff-0d1b-4c3a-9f8e-7b6a5d4c3b2a"
AGENT = "aaaaaaaa-0d1b-4c3a-9f8e-7b6a5d4c3b2a"
FLAT = POD.replace("-", "")


def slice_of(uid: str, qos: str = "") -> str:
    return f"kubepods-{qos}pod{uid.replace('-', '_')}.slice"


SLICES = "kubepods.slice/kubepods-burstable.slice"
OUTER = f"kubepods/burstable/pod{'0' * 8}-0000-0000-0000-{'0' * 12}/x"
NESTED = f"kubepods/pod{OTHER}/x"
""" What a container makes below its own cgroup. """

CGROUPS = [
    # One path of the agent, then that of a process and its pod.
    ("0::/\n", f"0::/kubepods/burstable/pod{POD}/0123abcd\n", POD),
    ("0::/\n", f"12:memory:/kubepods/pod{POD}/0123\n1:name=systemd:/user.slice\n0::/\n", POD),
    ("0::/\n", f"0::/{SLICES}/{slice_of(POD, 'burstable-')}/cri-containerd-0123.scope\n", POD),
    ("0::/\n", f"0::/../../{slice_of(POD)}/crio-0123.scope\n", POD),
    ("0::/system.slice/orion.service\n", f"0::/{SLICES}/{slice_of(POD, 'burstable-')}/crio-0123.scope/{NESTED}\n", POD),
    ("0::/\n", f"0::/orion-node-a/kubepods/besteffort/pod{FLAT}/0123\n", POD),
    # A cgroup that a container has made: with both drivers, with v1 and v2, with and without a namespace of cgroups.
    ("0::/\n", f"0::/../../pod{POD}/0123/pod{OTHER}\n", POD),
    ("0::/\n", f"0::/../../../burstable/pod{POD}/0123/{NESTED}\n", POD),
    ("0::/\n",
     f"0::/../../../kubepods-burstable.slice/{slice_of(POD, 'burstable-')}/crio-0123.scope/{slice_of(OTHER)}/x\n", POD),
    (f"0::/kubepods/pod{AGENT}/1\n", f"0::/kubepods/burstable/pod{POD}/0123/{NESTED}\n", POD),
    (f"4:cpu,memory:/kubepods/pod{AGENT}/1\n0::/\n", f"4:cpu,memory:/kubepods/pod{POD}/0123/{NESTED}\n0::/\n", POD),
    (f"0::/{SLICES}/{slice_of(AGENT, 'burstable-')}/cri-1.scope\n",
     f"0::/{SLICES}/{slice_of(POD, 'burstable-')}/cri-2.scope/{slice_of(OTHER)}/cri-3.scope\n", POD),
    # In the agent's own pod.
    (f"0::/kubepods/pod{AGENT}/1\n", f"0::/kubepods/pod{AGENT}/2/{NESTED}\n", AGENT),
    (f"0::/kubepods/pod{AGENT}/1\n", f"0::/kubepods/pod{AGENT}/1\n", AGENT),
    # A node that is itself a pod.
    (f"0::/{OUTER}/kubepods/pod{AGENT}/1\n", f"0::/{OUTER}/kubepods/pod{POD}/0123\n", POD),
    (f"0::/{OUTER}/kubepods/pod{AGENT}/1\n", f"0::/{OUTER}/kubepods/burstable/pod{POD}/0123/{NESTED}\n", POD),
    (f"0::/{OUTER}/agent\n", f"0::/{OUTER}/kubepods/pod{POD}/0123/{NESTED}\n", POD),
    (f"7:memory:/{OUTER}/kubepods/pod{AGENT}/1\n", f"7:memory:/{OUTER}/kubepods/pod{POD}/0123/{NESTED}\n", POD),
    # In no pod.
    ("0::/\n", "0::/user.slice/user-1000.slice/session-2.scope\n", ""),
    ("0::/\n", "0::/kubepods/pod-of-mine/0123\n", ""),
    ("0::/\n", f"0::/kubepods/xpod{POD}/0123\n", ""),
    ("0::/\n", "", ""),
    ("", f"0::/kubepods/pod{POD}/0123\n", POD),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "process", "uid"), CGROUPS, ids=range(len(CGROUPS)))
def test_a_cgroup_names_its_pod(agent: str, process: str, uid: str) -> None:
    assert pod_uid(process, paths(agent)) == uid
