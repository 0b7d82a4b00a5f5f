"""The worker processes by mode and share of the GPU. They start together, since a start takes longer than most runs."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from orion.bench.colocation import gpus
from orion.bench.colocation.shared_gpu import SharedGPU
from orion.bench.commandline import say
from orion.bench.workers.crew import Crew, Worker
from orion.errors import OrionError, Unavailable
from orion.hook.switching import Switcher

START_SECONDS = 150.0
SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
LEAD = 0.3  # seconds from a command until the run begins, for all workers to read it


@dataclass(frozen=True)
class Post:
    """One process: what it executes, and how it shares the GPU."""

    kind: str
    """`batches` or `engine`."""
    share: int | None = None
    """Percent of the SMs under MPS; None: a process without MPS."""
    number: int = 0
    """Tells processes with the same share apart."""

    @property
    def mode(self) -> str:
        """Return `mps` or `timeslice`."""
        return "timeslice" if self.share is None else "mps"

    @property
    def name(self) -> str:
        """Return the name in messages and of files."""
        share = "plain" if self.share is None else f"mps-{self.share}"
        return f"{self.kind}-{share}-{self.number}"


class Processes:
    """A context manager that ends all processes, and the MPS daemon, at its end."""

    def __init__(self, device: str, settings: dict[str, Any]) -> None:
        """Store the settings.

        Args:
            device: `cuda`, `cpu` or `fake`; only on `cuda` there are MPS and switches of contexts.
            settings: What a worker needs, by kind.
        """
        self._device, self._settings = device, settings
        self._stack = ExitStack()
        self._crew = Crew()
        self._workers: dict[Post, Worker] = {}
        self._shared: dict[str, SharedGPU] = {}
        self._switcher: Switcher | None = None
        self._given_up: dict[Post, str] = {}

    def __enter__(self) -> Self:
        try:
            if self._device == "cuda":
                device = gpus.choose(None, simulated=False)[0]
                for mode in ("timeslice", "mps"):
                    self._shared[mode] = self._stack.enter_context(SharedGPU(device, mode, simulated=False))
                environment = self._shared["timeslice"].environment()
                self._switcher = self._stack.enter_context(Switcher(device.uuid, environment))
            self._stack.enter_context(self._crew)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self, posts: Sequence[Post]) -> None:
        """Start these posts at the same time. A failed start is said, and `start` refuses its posts later."""
        began = time.monotonic()
        by_mode = {mode: [post for post in dict.fromkeys(posts) if post.mode == mode] for mode in ("timeslice", "mps")}
        launched: dict[Post, Worker] = {}
        for wanted in by_mode.values():
            with self._giving_up(wanted):
                launched |= self._launch([post for post in wanted if post not in self._workers])
        for mode, wanted in by_mode.items():
            ours = {post: launched[post] for post in wanted if post in launched}
            with self._giving_up(wanted):
                self._await(ours)
                say(f"{len(wanted)} processes ({mode}) are ready after {time.monotonic() - began:.1f} s")

    def start(self, posts: Sequence[Post]) -> None:
        """Start those of these posts that do not run, all at the same time."""
        missing = [post for post in dict.fromkeys(posts) if post not in self._workers]
        for post in missing:
            if post in self._given_up:
                raise Unavailable(f"{post.name} did not start before: {self._given_up[post]}")
        self._await(self._launch(missing))

    def _launch(self, posts: Sequence[Post]) -> dict[Post, Worker]:
        launched = {}
        for post in posts:
            settings = {"device": self._device, **self._settings[post.kind]}
            launched[post] = self._crew.start(
                post.name, post.kind, settings, self._environment(post), module="orion.bench.services.worker"
            )
        return launched

    def _await(self, launched: dict[Post, Worker]) -> None:
        try:
            self._crew.ready(*launched.values(), seconds=START_SECONDS)
        except OrionError:
            self._crew.end(launched.values())
            raise
        self._workers.update(launched)

    @contextmanager
    def _giving_up(self, posts: Sequence[Post]) -> Iterator[None]:
        try:
            yield
        except OrionError as error:
            lost = [post for post in posts if post not in self._workers]
            self._given_up.update(dict.fromkeys(lost, str(error)))
            say(f"{len(lost)} processes did not start: {' '.join(str(error).split())[:2000]}")

    def command(
        self, posts: Sequence[Post], commands: Sequence[dict[str, Any]], seconds: float, lead: float = LEAD
    ) -> list[dict[str, Any]]:
        """Give each worker its command for the same begin, and return the replies.

        Args:
            posts: Posts that `start` has filled.
            commands: One for each; `begin` is added, and `end`, if given, is relative to it.
            seconds: How long the workers may take from the begin.
            lead: Seconds until the begin.

        Raises:
            OrionError: A worker failed or did not answer. Its process and, if it used MPS, all that do, have ended.
        """
        workers = [self._workers[post] for post in posts]
        try:
            if self._switcher is not None:
                self._switcher.switch()
            begin = time.monotonic() + lead
            for worker, command in zip(workers, commands, strict=True):
                absolute = {"end": begin + command["end"]} if "end" in command else {}
                worker.command(**{**command, "begin": begin, **absolute})
            return self._crew.gather(*workers, seconds=lead + seconds)
        except OrionError:
            uses_mps = any(post.mode == "mps" for post in posts)
            self.drop([post for post in self._workers if post in posts or (uses_mps and post.mode == "mps")])
            if uses_mps and self._shared:
                self._shared["mps"].close_daemon()
            raise

    def drop(self, posts: Sequence[Post]) -> None:
        """End these processes."""
        self._crew.end([self._workers.pop(post) for post in posts if post in self._workers])

    def about(self, post: Post) -> dict[str, Any]:
        """Return what the worker said of itself."""
        return self._workers[post].about

    def _environment(self, post: Post) -> dict[str, str]:
        base = self._shared[post.mode].environment() if self._shared else dict(os.environ)
        return base if post.share is None else {**base, SHARE: str(post.share)}


def settings_for(services: dict[str, Any], sizes: dict[str, list[int]], engine: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of both kinds of workers, as JSON can hold them."""
    found: dict[str, Any] = json.loads(
        json.dumps({"batches": {"services": services, "sizes": sizes}, "engine": {"engine": engine}})
    )
    return found
