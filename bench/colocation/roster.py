"""Keeps the processes of one GPU between runs, so a process that several runs need starts and warms up only once.

A run measures some of the processes together. A post is the description of one process: its workloads and settings (see
`posts`). The roster starts a post's process when a run first needs the process, and restarts it after a failure. A
process that is not part of the current run launches nothing, but keeps its GPU memory. If there is too little memory to
start a process, the roster first ends the processes that were unused for longest.

Call the methods that start or end processes only while no run is in progress on any GPU of the host; see `host`.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from orion.bench.colocation.posts import Post
from orion.bench.colocation.shared_gpu import Environment, SharedGPU
from orion.bench.workers.crew import Crew, Worker
from orion.errors import OrionError, Unavailable

SERVICE_SECONDS = 1.0  # time for a service to start; a service that ends earlier has failed
TRIES = 3  # after so many failures, the roster does not start a post again


class Roster:
    """The processes of one GPU; a context manager that ends all of them."""

    def __init__(self, crew: Crew, gpus: Mapping[str, SharedGPU], free: Callable[[], float]) -> None:
        """Prepare an empty roster.

        Args:
            crew: starts and ends the processes.
            gpus: the GPU in each sharing mode, such as "timeslice" or "mps".
            free: returns the GPU's free memory in GiB.
        """
        self._crew = crew
        self._gpus = gpus
        self._free = free
        self._filled: dict[Post, list[Worker]] = {}
        self._failures: dict[Post, list[str]] = {}
        self._services: dict[tuple[str, ...], _Service] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(list(self._filled))

    def lacks(self, posts: Iterable[Post]) -> bool:
        """Return whether a process has to be started for these posts."""
        return not all(self._is_filled(post) for post in posts)

    def raise_if_given_up(self, posts: Iterable[Post]) -> None:
        """Raise an error if one of these posts failed to start too often.

        Raises:
            Unavailable: A post has failed `TRIES` times; the text has its last failure.
        """
        for post in posts:
            if len(self._failures.get(post, [])) >= TRIES:
                raise Unavailable(f"{post.name} is not tried again after {TRIES} failures: {self._failures[post][-1]}")

    def filled(self, posts: Sequence[Post]) -> dict[Post, list[Worker]]:
        """Return the workers of posts; a worker commands one client of a process. Start no process.

        Raises:
            Unavailable: A process has ended.
        """
        for post in posts:
            if not self._is_filled(post):
                raise Unavailable(f"{post.name} has ended while it was idle")
            self._filled[post] = self._filled.pop(post)  # moves it to the end: `_free_memory` begins at the front
        return {post: self._filled[post] for post in posts}

    def free_memory_for(self, posts: Iterable[Post]) -> None:
        """End processes of other posts until the GPU has memory for the missing processes of these posts."""
        wanted = list(dict.fromkeys(posts))
        self._free_memory(wanted, sum(post.memory_gib for post in wanted if post not in self._filled))

    def fill(self, posts: Iterable[Post]) -> None:
        """Start the missing processes of these posts.

        Raises:
            Unavailable: A process cannot be started; the others keep running.
        """
        wanted = list(dict.fromkeys(posts))
        self.raise_if_given_up(wanted)
        for post in wanted:
            if post in self._filled and not self._is_filled(post):
                self.end([post])
        fresh = [post for post in wanted if post not in self._filled]
        needed = 0.0  # GiB of the processes started here, which have not allocated their memory yet
        for post in fresh:
            needed += post.memory_gib
            self._free_memory(wanted, needed)
            self._start(post)
        for post in fresh:
            self._wait_until_ready(post)

    def prepare(self, posts: Iterable[Post]) -> None:
        """Start processes that will be needed soon, all at the same time.

        This method ignores failures. `fill` starts the process again when a run needs it, and reports the failure then.
        """
        started: list[Post] = []
        free_gib = self._free()
        for post in dict.fromkeys(posts):
            if post not in self._filled and not self._failures.get(post) and free_gib >= post.memory_gib:
                with contextlib.suppress(OrionError, OSError):
                    self._start(post)
                    started.append(post)
                    free_gib -= post.memory_gib
        for post in started:
            with contextlib.suppress(OrionError, OSError):
                self._wait_until_ready(post)

    def end(self, posts: Iterable[Post]) -> None:
        """End the processes of posts, and the services that no remaining process uses."""
        self._crew.end([worker for post in list(posts) for worker in self._filled.pop(post, [])])
        for command in [each for each in self._services if all(post.service != each for post in self._filled)]:
            self._services.pop(command).end()

    def keep(self, wanted: Callable[[Post], bool]) -> None:
        """End the processes of all posts that are not wanted."""
        self.end([post for post in self._filled if not wanted(post)])

    def _is_filled(self, post: Post) -> bool:
        return post in self._filled and all(worker.alive() for worker in self._filled[post])

    def _start(self, post: Post) -> None:
        try:
            self._filled[post] = self._started(post)
        except (OrionError, OSError) as error:
            self._failures.setdefault(post, []).append(str(error))
            raise

    def _started(self, post: Post) -> list[Worker]:
        gpu = self._gpus[post.mode]
        environment = {**self._environment(post, gpu), **dict(post.environment)}
        if post.service and post.service not in self._services:
            self._services[post.service] = _Service(post.service, environment)
        if post.threads != "no":
            clients, scheduled = [client.to_json() for client in post.clients], post.threads == "scheduled"
            return self._crew.start_threads(post.name, clients, environment, post.prefix, scheduled)
        client = post.clients[0].to_json()
        return [self._crew.start(post.name, client["kind"], client["options"], environment, post.prefix)]

    def _environment(self, post: Post, gpu: SharedGPU) -> Environment:
        if post.threads == "scheduled":
            return gpu.preloaded_environment(post.baselines)
        if post.domain is None:
            return gpu.environment(post.ranks)
        return gpu.slot_environment(post.domain, post.baselines, post.role, post.index, post.request, post.ranks)

    def _wait_until_ready(self, post: Post) -> None:
        workers = self._filled[post]
        try:
            self._crew.ready(*workers)
            if post.domain is not None and not post.prefix:  # with a prefix, the client may be a child of the process
                self._gpus[post.mode].agent(post.domain, post.baselines).wait_for_process(workers[0].process_id)
        except Exception as error:
            self._failures.setdefault(post, []).append(str(error))
            self.end([post])
            raise
        self._failures.pop(post, None)

    def _free_memory(self, wanted: list[Post], needed: float) -> None:
        """End processes of unwanted posts until `needed` GiB are free."""
        while self._free() < needed:
            idle = next((post for post in self._filled if post not in wanted), None)
            if idle is None:
                return
            self.end([idle])


class _Service:
    """The service process that another project's scheduler (`Foreign`) needs beside its workers."""

    def __init__(self, command: tuple[str, ...], environment: Environment) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
            start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SERVICE_SECONDS)
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-500:] or "(nothing)"
            self._errors.close()
            raise Unavailable(f"service {command[0]} ended with status {self._process.returncode}; its output: {said}")

    def end(self) -> None:
        """End the service and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 15)
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
        self._errors.close()
