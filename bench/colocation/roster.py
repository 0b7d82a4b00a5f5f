"""The processes of one GPU, by post: started when first needed, kept while needed, started again when one fails.

Processes whose turn it is not have nothing on the GPU, but their memory stays there. Where there is too little for one
more, those that have waited longest for their turn end before it is started. Whatever starts or ends something here is
called while nobody on the host measures; see `host`.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from orion.bench.colocation.posts import Post
from orion.bench.colocation.shared_gpu import Environment, SharedGPU
from orion.bench.workers.crew import Crew, Worker, WorkerError

SERVICE_SECONDS = 1.0  # that a service has to get ready; one that ends within is a failure
TRIES = 3  # a post whose process failed to start so often is given up


class Roster:
    """A context manager; leaving it ends everything."""

    def __init__(self, crew: Crew, gpus: Mapping[str, SharedGPU], free: Callable[[], float]) -> None:
        """Args: gpus is by mode; free says how many GiB of the GPU's memory are free."""
        self._crew = crew
        self._gpus = gpus
        self._free = free
        self._filled: dict[Post, list[Worker]] = {}
        self._failures: dict[Post, list[str]] = {}
        self._services: dict[tuple[str, ...], _Service] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.dismiss(list(self._filled))

    def lacks(self, posts: Iterable[Post]) -> bool:
        """Say whether a process of these has to be started."""
        return not all(self._is_filled(post) for post in posts)

    def refuse_hopeless(self, posts: Iterable[Post]) -> None:
        """Raise what became of a post that failed to start too often.

        Raises:
            WorkerError: One did.
        """
        for post in posts:
            if len(self._failures.get(post, [])) >= TRIES:
                raise WorkerError(f"{post.name} is not tried again after {TRIES} failures: {self._failures[post][-1]}")

    def filled(self, posts: Sequence[Post]) -> dict[Post, list[Worker]]:
        """Return the workers of posts, one, or one a thread; nothing is started.

        Raises:
            WorkerError: One has ended.
        """
        for post in posts:
            if not self._is_filled(post):
                raise WorkerError(f"{post.name} has ended while nothing was asked of it")
            self._filled[post] = self._filled.pop(post)  # used last, so the last to make room
        return {post: self._filled[post] for post in posts}

    def make_room(self, posts: Iterable[Post]) -> None:
        """End processes of other posts until there is memory for what these lack."""
        wanted = list(dict.fromkeys(posts))
        self._make_room(wanted, sum(post.memory_gib for post in wanted if post not in self._filled))

    def fill(self, posts: Iterable[Post]) -> None:
        """Start what is lacking.

        Raises:
            WorkerError, AgentError, MpsError: One cannot be started; those that can stay.
        """
        wanted = list(dict.fromkeys(posts))
        self.refuse_hopeless(wanted)
        for post in wanted:
            if post in self._filled and not self._is_filled(post):
                self.dismiss([post])
        fresh = [post for post in wanted if post not in self._filled]
        needed = 0.0  # of those that were started here: what they take does not show yet
        for post in fresh:
            needed += post.memory_gib
            self._make_room(wanted, needed)
            self._hire(post)
        for post in fresh:
            self._welcome(post)

    def prepare(self, posts: Iterable[Post]) -> None:
        """Start what will be needed soon, all at once; what fails is left to be tried again, and told, in its turn."""
        started: list[Post] = []
        room = self._free()
        for post in dict.fromkeys(posts):
            if post not in self._filled and not self._failures.get(post) and room >= post.memory_gib:
                with contextlib.suppress(WorkerError, RuntimeError, OSError):
                    self._hire(post)
                    started.append(post)
                    room -= post.memory_gib
        for post in started:
            with contextlib.suppress(WorkerError, RuntimeError, OSError):
                self._welcome(post)

    def dismiss(self, posts: Iterable[Post]) -> None:
        """End the processes of posts, and services that nobody is left to use."""
        self._crew.dismiss([worker for post in list(posts) for worker in self._filled.pop(post, [])])
        for command in [each for each in self._services if all(post.service != each for post in self._filled)]:
            self._services.pop(command).end()

    def keep(self, wanted: Callable[[Post], bool]) -> None:
        """End all others."""
        self.dismiss([post for post in self._filled if not wanted(post)])

    def _is_filled(self, post: Post) -> bool:
        return post in self._filled and all(worker.alive() for worker in self._filled[post])

    def _hire(self, post: Post) -> None:
        gpu = self._gpus[post.mode]
        environment = {**self._environment(post, gpu), **dict(post.environment)}
        if post.service and post.service not in self._services:
            self._services[post.service] = _Service(post.service, environment)
        if post.threads != "no":
            clients, scheduled = [client.to_json() for client in post.clients], post.threads == "scheduled"
            self._filled[post] = self._crew.hire_threads(post.name, clients, environment, post.prefix, scheduled)
            return
        client = post.clients[0].to_json()
        self._filled[post] = [
            self._crew.hire(post.name, client["kind"], client["options"], environment, post.prefix)
        ]  # fmt: skip

    def _environment(self, post: Post, gpu: SharedGPU) -> Environment:
        if post.threads == "scheduled":
            return gpu.preloaded_environment(post.baselines)
        if post.domain is None:
            return gpu.environment()
        return gpu.slot_environment(post.domain, post.baselines, post.role, post.index, post.weight)

    def _welcome(self, post: Post) -> None:
        workers = self._filled[post]
        try:
            self._crew.ready(*workers)
            if post.domain is not None and not post.prefix:  # else the process may be a child of what was started
                self._gpus[post.mode].agent(post.domain, post.baselines).wait_for_process(workers[0].process_id)
        except Exception as error:
            self._failures.setdefault(post, []).append(str(error))
            self.dismiss([post])
            raise
        self._failures.pop(post, None)

    def _make_room(self, wanted: list[Post], needed: float) -> None:
        """End processes whose turn it is not until so many GiB are free."""
        while self._free() < needed:
            idle = next((post for post in self._filled if post not in wanted), None)
            if idle is None:
                return
            self.dismiss([idle])


class _Service:
    """What a foreign system has running beside its processes."""

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
            raise WorkerError(f"service {command[0]} ended with status {self._process.returncode}; it said: {said}")

    def end(self) -> None:
        """End the service and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 15)
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
        self._errors.close()
