"""Faults in any order: no slot is ever held twice, and no slot is lost.

A rule-based state machine runs on one node. It creates and removes pods, while it ends, replaces and disconnects the
kubelet, the plugin and the agent. After each step, the kubelet's capacity must match the agent's last snapshot, and the
kubelet's checkpoint must match the slots of the pods.
"""

import contextlib
import shutil
import signal
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.device_plugin.conftest import BE, HP, Node
from tests.device_plugin.plugin_process import eventually
from tests.device_plugin.scripted_agent import devices
from tests.device_plugin.stand_in_kubelet import AdmissionFailed, StartFailed

_GPUS, _BE = 2, 2


class Faults(RuleBasedStateMachine):
    """The faults of a node."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
        self.node = Node(self.folder)
        self.node.agent.snapshot = devices(_GPUS, be=_BE)
        self.pods: dict[str, tuple[str, str]] = {}
        """ Resource and slot of each running pod. """
        self.healthy = self.agent_runs = True
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.node.agent.start()
        self.node.kubelet.start()
        self.node.plugin()

    def allocatable(self) -> Mapping[str, int]:
        return {HP: _GPUS, BE: _GPUS * _BE} if self.healthy else {HP: 0, BE: 0}

    # -- Pods ----------------------------------------------------------------------------------------------------------

    @rule(resource=st.sampled_from([HP, BE]))
    def a_pod_comes(self, resource: str) -> None:
        self.count += 1
        pod = f"pod-{self.count}"
        taken = sum(each == resource for each, _ in self.pods.values())
        wanted = {resource.rpartition("/")[2]: 1}
        if taken >= self.allocatable()[resource]:
            with pytest.raises(AdmissionFailed):
                self.node.kubelet.admit(pod, "main", **wanted)
            return
        given: list[str] = []

        def admitted() -> bool:
            with contextlib.suppress(AdmissionFailed):  # the plugin is registering; a controller makes another pod
                given.extend(self.node.kubelet.admit(pod, "main", **wanted))
            return bool(given)

        eventually(admitted, f"a pod is given a slot of {resource}")
        assert given[0] not in [held for _, held in self.pods.values()]
        self.pods[pod] = (resource, given[0])

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def a_container_starts(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.pods)))
        self.node.agent.prepared.clear()
        if self.agent_runs:
            self.node.until_connected()

        def started() -> bool:
            with contextlib.suppress(StartFailed):  # the plugin is registering; a kubelet retries
                self.node.kubelet.start_container(pod, "main")
                return True
            return False

        eventually(started, "the container starts")
        if self.agent_runs:
            assert self.node.agent.prepared[-1:] == [self.pods[pod][1]]

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.pods)))
        del self.pods[pod]
        self.node.kubelet.remove(pod)

    # -- Faults --------------------------------------------------------------------------------------------------------

    @rule()
    def the_kubelet_restarts(self) -> None:
        self.node.kubelet.restart()

    @rule()
    def the_sockets_are_wiped(self) -> None:
        for path in self.node.kubelet.folder.glob("orion-*.sock"):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink(missing_ok=True)

    @rule(resource=st.sampled_from([HP, BE]))
    def a_stream_breaks(self, resource: str) -> None:
        eventually(lambda: self.node.kubelet.break_stream(resource), f"there is a stream of {resource}")

    @rule(number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]))
    def the_plugin_is_replaced(self, number: signal.Signals) -> None:
        self.node.plugins[-1].end(number)
        self.node.plugin()

    @rule(number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]))
    def the_plugin_is_updated(self, number: signal.Signals) -> None:
        old, before = self.node.plugins[-1], len(self.node.kubelet.registrations)
        self.node.plugin()
        eventually(lambda: len(self.node.kubelet.registrations) >= before + 2, "the new one is registered")
        old.end(number)

    @rule()
    def the_agent_is_away_or_back(self) -> None:
        if self.agent_runs:
            self.node.agent.stop()
        else:
            self.node.agent.start()
            eventually(lambda: self.node.agent.connected, "the plugin is connected to the agent")
        self.agent_runs = not self.agent_runs

    @precondition(lambda self: self.agent_runs)
    @rule()
    def the_gpus_are_sick_or_well(self) -> None:
        self.healthy = not self.healthy
        self.node.agent.send(devices(_GPUS, be=_BE, healthy=self.healthy))

    # -- Invariants ----------------------------------------------------------------------------------------------------

    @invariant()
    def no_slot_is_lost(self) -> None:
        if not self.node.plugins:
            return
        kubelet = self.node.kubelet
        for resource, number in self.allocatable().items():
            capacity = _GPUS * (_BE if resource == BE else 1)
            eventually(lambda name=resource, of=capacity: kubelet.capacity(name) == of, f"{capacity} of {resource}")  # type: ignore[misc]
            eventually(
                lambda name=resource, of=number: kubelet.listed(name) and kubelet.allocatable(name) == of,  # type: ignore[misc]
                f"{number} of {resource} are allocatable",
            )
        assert self.node.plugins[-1].running

    @invariant()
    def no_slot_is_held_twice(self) -> None:
        written = {pod: (resource, next(iter(slots))) for pod, _, resource, slots in self.node.kubelet.checkpoint()}
        assert written == self.pods
        assert len({slot for _, slot in self.pods.values()}) == len(self.pods)

    def teardown(self) -> None:
        self.node.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestFaults = Faults.TestCase
TestFaults.settings = settings(
    max_examples=3, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
