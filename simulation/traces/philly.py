"""The Philly trace (`cluster_job_log`): a JSON list of jobs, read one job after the other.

A job's number of GPUs is that of its first attempt. The duration is the sum of all attempts that have a start and an
end. A job without such an attempt is left out. Arrival times count from the first job of the file. The jobs in the file
are not in the order of arrival.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from orion.errors import Unreadable

from .entries import JobEntry, Skipped
from .numbers import instant_ns
from .text import pieces

_LONGEST_JOB = 16 << 20
_WHITE = " \t\r\n"


class _Place(BaseModel):
    gpus: list[Any]


class _Attempt(BaseModel):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Place] = []


class _Job(BaseModel):
    jobid: str
    submitted_time: str
    attempts: list[_Attempt]


def entries(path: Path) -> Iterator[JobEntry | Skipped]:
    """Yield the jobs of a file.

    Raises:
        Unreadable: the file cannot be read, or is not valid JSON.
    """
    first_ns: int | None = None
    for line, element in _elements(path):
        try:
            job = _Job.model_validate(element)
            submitted_ns = instant_ns(job.submitted_time)
            first_ns = submitted_ns if first_ns is None else first_ns
            yield _entry(line, job, (submitted_ns - first_ns) / 1e9)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the element"
            yield Skipped(line, f"{place}: {first['msg'].partition(' or instance')[0].lower()}", is_bad=True)
        except ValueError as error:
            yield Skipped(line, str(error), is_bad=True)


def _entry(line: int, job: _Job, arrival_s: float) -> JobEntry | Skipped:
    durations_s = [_duration_s(number, attempt) for number, attempt in enumerate(job.attempts, 1)]
    complete_s = [duration_s for duration_s in durations_s if duration_s is not None]
    if not complete_s:
        why = "no attempt has a begin and an end" if job.attempts else "the job has no attempt"
        return Skipped(line, why, is_bad=False)
    gpus = sum(len(place.gpus) for place in job.attempts[0].detail)
    if not gpus:
        return Skipped(line, "the first attempt has no GPU", is_bad=False)
    return JobEntry(line, job.jobid, arrival_s, gpus, sum(complete_s))


def _duration_s(number: int, attempt: _Attempt) -> float | None:
    begin, end = attempt.start_time, attempt.end_time
    if begin in (None, "", "None") or end in (None, "", "None"):
        return None
    lasted_ns = instant_ns(end or "") - instant_ns(begin or "")
    if lasted_ns < 0:
        raise ValueError(f"attempt {number} ends {-lasted_ns / 1e9:g} s before it begins")
    return lasted_ns / 1e9


def _elements(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the elements of a JSON list, with the lines on which they begin."""
    text = _Text(path)
    text.take("[")
    if text.peek() == "]":
        return
    while True:
        text.peek()
        yield text.line, text.value()
        if text.take(",]") == "]":
            return


class _Text:
    """A file's text that is read as far as needed; holds one piece, or one element if that is longer."""

    def __init__(self, path: Path) -> None:
        self._path, self._pieces, self._text, self._at = path, pieces(path), "", 0
        self._decoder = json.JSONDecoder()
        self.line = 1

    def peek(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in _WHITE:
                self._advance(self._at + 1)
            if self._at < rest:
                return self._text[self._at]
            if not self._fill():
                return ""

    def take(self, expected: str) -> str:
        """Return the next character, which must be one of the expected characters."""
        found = self.peek()
        if not found or found not in expected:
            names = " or ".join(expected)
            raise self._broken(
                self.line, f"{names} was expected, and not {found!r}" if found else "the file ends early"
            )
        self._advance(self._at + 1)
        return found

    def value(self) -> Any:
        """Return the next element."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at < _LONGEST_JOB and self._fill():
                    continue
                stop = getattr(error, "pos", self._at)
                why = getattr(error, "msg", "the JSON is nested too deep, or has a number that is too long")
                raise self._broken(self.line + self._text.count("\n", self._at, stop), why) from None
            if end == len(self._text) and self._fill():
                continue  # a number may go on
            self._advance(end)
            return value

    def _advance(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _fill(self) -> bool:
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._text, self._at = self._text[self._at :] + piece, 0
        return True

    def _broken(self, line: int, why: str) -> Unreadable:
        return Unreadable(f"{self._path}, line {line}: this is no JSON list of jobs ({why}): fetch the file again")
