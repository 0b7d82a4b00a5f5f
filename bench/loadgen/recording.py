"""The times of each request of a run, and the log that holds them.

Columns are arrays of numbers: a run of an hour at 1,000 requests a second needs 200 MB as objects, and 60 MB as arrays,
which the garbage collector need not look at.
"""

import math
from array import array
from collections.abc import Iterator

from orion.bench.loadgen.events import Completion

TIMEOUT, REFUSED, CLOSED, BROKEN, FAILED = "timeout", "refused", "closed", "broken", "failed"
""" In the column `status`, for requests without an HTTP status: no answer in time; the connection was refused, or
closed before the end of the answer; a stream that is not OpenAI-style or reports an error; anything else. """
UNANSWERED = "unanswered"
""" The request was waiting for its answer when the run was stopped. """


def is_success(status: int | str) -> bool:
    """Return whether a status is an HTTP status from 200 to 299."""
    return isinstance(status, int) and 200 <= status < 300


class Recording:
    """One row for each request that was sent, in the order of the schedule. Times are seconds from the run's begin.

    Attributes:
        due_s: when the request was scheduled.
        sent_s: when this program began to send it.
        end_s: when the answer was complete, or when it was clear that no answer comes.
        status: the HTTP status, or one of the words above.
        first_s, last_s: when the first and the last content of a stream arrived; NaN without content.
        tokens: the number of tokens of a stream.
        stopped_s: when the run was stopped; NaN if it went to its end.
    """

    def __init__(self) -> None:
        self.due_s, self.sent_s, self.end_s = array("d"), array("d"), array("d")
        self.status: list[int | str] = []
        self.first_s, self.last_s = array("d"), array("d")
        self.tokens = array("q")
        self.stopped_s = math.nan

    def __len__(self) -> int:
        return len(self.due_s)

    def begin(self, due_s: float) -> int:
        """Add a request that is about to be sent; return its row."""
        self.due_s.append(due_s)
        for column in (self.sent_s, self.end_s, self.first_s, self.last_s):
            column.append(math.nan)
        self.status.append(UNANSWERED)
        self.tokens.append(0)
        return len(self.due_s) - 1

    def end(self, row: int, now_s: float, status: int | str, completion: Completion | None = None) -> None:
        """Record how a request ended."""
        self.end_s[row] = now_s
        self.status[row] = status
        if completion is not None and completion.first_s is not None and completion.last_s is not None:
            self.first_s[row], self.last_s[row] = completion.first_s, completion.last_s
            self.tokens[row] = completion.tokens

    def is_answered(self, row: int) -> bool:
        """Return whether the server answered with success, and completely."""
        return is_success(self.status[row])

    def is_error(self, row: int) -> bool:
        """Return whether a request failed. A request that was waiting when the run was stopped did not fail."""
        return self.status[row] != UNANSWERED and not self.is_answered(row)

    def latency_s(self, row: int) -> float | None:
        """Return the time from the schedule to the end of the answer; None if the request has no latency.

        A request that timed out has one: it lasted at least so long. Without it, the percentiles would leave out the
        requests that suffered most. Other failures end early, and would make the server look faster than it is.
        """
        if self.is_answered(row) or self.status[row] == TIMEOUT:
            return self.end_s[row] - self.due_s[row]
        return None

    def first_token_s(self, row: int) -> float | None:
        """Return the time from the schedule to the first content of a stream; None if there was none.

        As with `latency_s`, a request that timed out before its first content waited at least so long.
        """
        if math.isnan(self.first_s[row]) or not (self.is_answered(row) or self.status[row] == TIMEOUT):
            return self.latency_s(row) if self.status[row] == TIMEOUT else None
        return self.first_s[row] - self.due_s[row]

    def per_token_s(self, row: int) -> float | None:
        """Return the mean time between two tokens of a stream; None with fewer than two."""
        apart = self.last_s[row] - self.first_s[row]
        if math.isnan(apart) or self.tokens[row] < 2 or not self.is_answered(row):
            return None
        return apart / (self.tokens[row] - 1)

    def csv(self, *, has_tokens: bool) -> Iterator[str]:
        """Yield the lines of the log. A time that does not exist is empty."""
        more = ",first_token_s,last_token_s,tokens" if has_tokens else ""
        yield f"due_s,sent_s,end_s,status{more}\n"
        for row in range(len(self)):
            cells = [*map(_seconds, (self.due_s[row], self.sent_s[row], self.end_s[row])), str(self.status[row])]
            if has_tokens:
                cells += [_seconds(self.first_s[row]), _seconds(self.last_s[row]), str(self.tokens[row])]
            yield ",".join(cells) + "\n"


def _seconds(time_s: float) -> str:
    return "" if math.isnan(time_s) else f"{time_s:.9f}"
