"""Runs a suite's files in the three roles: without the hook, as hp, and as be."""

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measurements.repeating import repeated
from measurements.suites import parking
from measurements.suites.catalogue import Suite
from measurements.suites.files import OF_PROCESS, FileRun, Limits, run_file
from orion import hook
from orion.bench import managed
from orion.bench.commandline import say
from orion.cli.launching import preloading_environment
from orion.errors import Unavailable
from orion.node_agent.api import agent_pb2

ROLES = ("none", "hp", "be")
LOOK_SECONDS = 0.25
PROBE = """
import ctypes, importlib.metadata, json, sys
version = ctypes.c_int()
try:
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
except OSError:
    pass
found = {each.metadata["Name"].lower(): each.version for each in importlib.metadata.distributions()}
print(json.dumps({"cuda": version.value, "found": {name: found[name] for name in sys.argv[1:] if name in found}}))
"""


@dataclass
class Settings:
    """What one invocation runs.

    Attributes:
        suite: The suite.
        sources: The folder with its tests.
        files: The files, relative to `sources`.
        limit_s: Time for each role.
        again_limit_s: Time for all second runs.
        test_limit_s: Time for one test.
        workers: Processes of a role at a time.
        together: All roles at the same time, on the same GPU.
        simulated: On a simulated GPU.
        parks: The be processes leave the GPU and come back, all the time.
        threads: The roles are those of client threads, beside a client of the other role in the same process.
    """

    suite: Suite
    sources: Path
    files: list[str]
    limit_s: float
    again_limit_s: float
    test_limit_s: float
    workers: int
    together: bool
    simulated: bool
    parks: bool
    threads: bool
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass
class Results:
    """First runs and second runs by role and file; process ids that the agent saw, by role; stays; versions."""

    first: dict[str, dict[str, FileRun]] = field(default_factory=lambda: {role: {} for role in ROLES})
    second: dict[str, dict[str, FileRun]] = field(default_factory=lambda: {role: {} for role in ROLES})
    seconds: dict[str, float] = field(default_factory=dict)
    joined: dict[str, set[int]] = field(default_factory=lambda: {"hp": set(), "be": set()})
    stays: parking.Stays = field(default_factory=parking.Stays)
    versions: dict[str, Any] = field(default_factory=dict)


Environments = Mapping[str, Callable[[], Mapping[str, str]]]
""" What makes the variables of a file's processes, by role. """


def run(settings: Settings, results: Results) -> None:
    """Run the suite. `results` is filled on the way, so it has what was done when Ctrl-C comes.

    Raises:
        Unavailable: The agent does not start.
    """
    with managed.machine(settings.simulated) as environment, managed.ManagedGPU(environment, settings.simulated) as gpu:
        environments = _environments(settings, gpu, environment)
        results.versions = _versions(settings.suite, environments["none"]())
        with contextlib.ExitStack() as beside:
            beside.enter_context(repeated(lambda: _note_clients(gpu, results.joined), LOOK_SECONDS))
            if settings.parks:
                beside.enter_context(repeated(lambda: results.stays.look(gpu), parking.LOOK_SECONDS))
            for roles in (ROLES,) if settings.together else [(role,) for role in ROLES]:
                _roles(settings, results, roles, environments)
            _again(settings, results, environments)


def _environments(settings: Settings, gpu: managed.ManagedGPU, environment: Mapping[str, str]) -> Environments:
    own = _own(settings, environment)
    none = {**environment, **own}
    if settings.threads:
        hp, be = (_client_thread(none, role) for role in ("hp", "be"))
        return {"none": lambda: none, "hp": lambda: hp, "be": lambda: be}
    hp, be = ({**gpu.client_environment(role), **own} for role in ("hp", "be"))

    def be_that_parks() -> Mapping[str, str]:
        return {**gpu.client_environment("be", memory=parking.SLOT), **own}

    return {"none": lambda: none, "hp": lambda: hp, "be": be_that_parks if settings.parks else lambda: be}


def _client_thread(none: Mapping[str, str], role: str) -> dict[str, str]:
    variables = {"PYTEST_ADDOPTS": "-p orion_client_thread", "ORION_SUITE_ROLE": role}
    return {**preloading_environment(none, hook.library(), None), **variables}


def _own(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    path = [str(settings.sources) if settings.suite.on_path else "", environment.get("PYTHONPATH", "")]
    return {**settings.suite.variables, "PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTEST_ADDOPTS": ""}


def _versions(suite: Suite, environment: Mapping[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *suite.packages], env=environment, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise Unavailable(f"the versions of {', '.join(suite.packages)} cannot be read: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _roles(settings: Settings, results: Results, roles: tuple[str, ...], environments: Environments) -> None:
    """Run all files in these roles, with `workers` processes of each role at a time."""
    began = time.monotonic()
    limits = Limits(began + settings.limit_s, settings.test_limit_s, settings.stop)
    left_out = list(settings.suite.left_out)

    def one(role: str, file: str) -> None:
        done = run_file(settings.sources, file, environments[role](), limits, left_out, [])
        results.first[role][file] = done
        results.seconds[role] = round(time.monotonic() - began, 1)
        say(f"{role:4}  {len(results.first[role])}/{len(settings.files)}  {file}: {_brief(done)}")

    with contextlib.ExitStack() as stack:
        pools = {role: stack.enter_context(concurrent.futures.ThreadPoolExecutor(settings.workers)) for role in roles}
        futures = [pools[role].submit(one, role, file) for file in settings.files for role in roles]
        _finish(futures, settings.stop)


def _finish(futures: list[concurrent.futures.Future[None]], stop: threading.Event) -> None:
    try:
        for future in concurrent.futures.as_completed(futures):
            future.result()
    except BaseException:
        stop.set()
        for future in futures:
            future.cancel()
        raise


def _again(settings: Settings, results: Results, environments: Environments) -> None:
    """Run once more, one role after another, the tests that ended differently."""
    chosen = {file: tests for file in settings.files if (tests := differing(results, file))}
    limits = Limits(time.monotonic() + settings.again_limit_s, settings.test_limit_s, settings.stop)
    left_out = list(settings.suite.left_out)
    for file, tests in chosen.items():
        say(f"{file}: {len(tests)} tests ended differently by role; they run once more")
        for role in ROLES:
            only = [] if file + OF_PROCESS in tests else tests
            results.second[role][file] = run_file(settings.sources, file, environments[role](), limits, left_out, only)


def differing(results: Results, file: str) -> list[str]:
    """Return the file's tests that ended in all roles, and not in all alike."""
    by_role = [results.first[role].get(file, FileRun()).outcomes for role in ROLES]
    return [test for test in by_role[0] if len({outcomes.get(test, "") for outcomes in by_role} - {""}) > 1]


def _brief(done: FileRun) -> str:
    counts = Counter(outcome for test, outcome in done.outcomes.items() if not test.endswith(OF_PROCESS))
    parts = [f"{number} {outcome}" for outcome, number in sorted(counts.items())]
    return ", ".join([*parts, *([] if done.state == "finished" else [done.state])]) or "no tests"


def _note_clients(gpu: managed.ManagedGPU, joined: dict[str, set[int]]) -> None:
    """Note the processes that the agent has as hp and as be: they show that the hook was active."""
    with contextlib.suppress(Unavailable):
        for slot in gpu.snapshot().slots:
            role = agent_pb2.Role.Name(slot.role).lower()
            joined[role].update(client.process_id for client in slot.clients)
