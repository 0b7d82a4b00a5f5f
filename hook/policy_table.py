"""All policies and all fields of a policy, one row for each. All other code takes them from these tables.

These use the tables: the words of the policy page (``hook/include/orion/policy.h``, written by ``hook.generate``, and
``hook/layout.py``); the agent's settings, requests and answers; the options of ``orion policy set``, ``orion agent``
and ``orion run``; fields of GPUShares and grants; the scenarios of ``orion bench``. To add a field, add a row behind
the last one, raise ``LAYOUT_VERSION`` in ``hook/layout.py`` by one, write the code in ``hook/src`` that reads the
field, and run `make generate`.

The order of rows is the order of words in the page, so only append rows.

``BENCH`` adds re-implementations of published schedulers, for comparison. Only the library that `orion bench` preloads
and the agent that it starts have them (that agent's environment contains ``ORION_BASELINES=1``).
"""

import os
from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """A unit: the suffixes of a field's name for users and in the page, and the factor between the two values."""

    MICROSECONDS = ("_us", "_ns", 1_000)
    MILLISECONDS = ("_ms", "_ns", 1_000_000)
    RATIO = ("", "_milli", 1_000)
    SMS = ("_sms", "_sms", 1)
    NUMBER = ("", "", 1)

    def __init__(self, suffix: str, page_suffix: str, factor: int) -> None:
        self.suffix, self.page_suffix, self.factor = suffix, page_suffix, factor

    @property
    def is_time(self) -> bool:
        """Whether the unit is a unit of time."""
        return self.page_suffix == "_ns"

    @property
    def size(self) -> int:
        """Bytes of a word in the page: 8 for times, 4 for all others."""
        return 8 if self.is_time else 4


@dataclass(frozen=True)
class Row:
    """One field of a policy.

    Attributes:
        stem: the field's name without the unit.
        unit: the unit of the values that users set.
        least: the lowest valid value, in that unit.
        most: the highest valid value, in that unit.
        default: the value if users set none.
        sentence: tells users what the field does; omits unit, bounds and default.
        default_is: what the default means, if its number does not show it.
        rest_word: the name of the word without the unit, if the page stores the rest to 1 of a ratio; empty: the page
            stores the ratio.
        by_hp: whether `orion run --priority hp` has an option for it.
        share: the field's path in a GPUShare's spec; empty: a GPUShare does not have it.
        policies: the policies that use the field.
    """

    stem: str
    unit: Unit
    least: float
    most: float
    default: float
    sentence: str
    default_is: str = ""
    rest_word: str = ""
    by_hp: bool = False
    share: str = ""
    policies: tuple[str, ...] = ("orion", "gate")

    @property
    def name(self) -> str:
        """The name in settings, requests and options."""
        return f"{self.stem}{self.unit.suffix}"

    @property
    def word(self) -> str:
        """The name in the page."""
        return f"{self.rest_word or self.stem}{self.unit.page_suffix}"

    @property
    def granted(self) -> str:
        """The name in a pod's grant, where all values are integers, so ratios are in thousandths."""
        return f"{self.stem}{self.unit.page_suffix}" if self.unit is Unit.RATIO else self.name

    @property
    def kind(self) -> type[int] | type[float]:
        """The Python type of the field's values."""
        return float if self.unit is Unit.RATIO else int

    def to_page(self, value: float) -> int:
        """Return a user's value in the unit of the page."""
        return self._stored(round(value * self.unit.factor))

    def from_page(self, word: int) -> float:
        """Return a value of the page in the unit for users."""
        return self._stored(word) / self.unit.factor if self.kind is float else word // self.unit.factor

    def from_grant(self, value: int) -> int:
        """Return a value of a grant in the unit of the page, limited to the field's bounds."""
        word = self._stored(value) if self.unit is Unit.RATIO else self.to_page(value)
        least, most = self.page_bounds
        return min(max(word, least), most)

    @property
    def page_bounds(self) -> tuple[int, int]:
        """The lowest and the highest valid value in the page."""
        least, most = sorted((self.to_page(self.least), self.to_page(self.most)))
        return least, most

    def _stored(self, amount: int) -> int:
        """Convert between a value and the rest to 1, if the page stores the rest; the same in both directions."""
        return self.unit.factor - amount if self.rest_word else amount


@dataclass(frozen=True)
class Policy:
    """One policy.

    Attributes:
        name: the name for users.
        number: the number in the page.
        sentence: what be waits for under this policy.
    """

    name: str
    number: int
    sentence: str


SIZE = 128
""" Bytes of `struct orion_policy`. """

_HEAD = [("sequence", 8, 1), ("kind", 4, 1), ("reserved", 4, 1)]


def _aligned(words: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return the words, with named padding words where a compiler would insert padding."""
    found: list[tuple[str, int, int]] = []
    end = 0
    for name, size, count in words:
        if end % size:
            found.append((f"padding_{end}", 4, 1))
            end += 4
        found.append((name, size, count))
        end += size * count
    return found


def _end(words: list[tuple[str, int, int]]) -> int:
    return sum(size * count for _, size, count in _aligned(words))


@dataclass(frozen=True)
class Table:
    """The policies and fields that one build of the library knows; the first policy is the default."""

    policies: tuple[Policy, ...]
    rows: tuple[Row, ...]
    appended: tuple[Row, ...] = ()
    """ Fields at the end of the page's structure, so that the release can append fields before them. """

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """All fields, in the order of the page."""
        return self.rows + self.appended

    @property
    def names(self) -> tuple[str, ...]:
        """The policies' names."""
        return tuple(policy.name for policy in self.policies)

    def words(self) -> list[tuple[str, int, int]]:
        """Return the members of `struct orion_policy`: the name, bytes of a word, and number of words of each."""
        head = _HEAD + [(row.word, row.unit.size, 1) for row in self.rows]
        tail = [(row.word, row.unit.size, 1) for row in self.appended]
        spare = SIZE - _end(head) - _end(tail)
        return [*_aligned(head), ("spare", 4, spare // 4), *tail]

    def number(self, name: str) -> int:
        """Return a policy's number; raises KeyError if there is no such policy."""
        return {policy.name: policy.number for policy in self.policies}[name]

    def name(self, number: int) -> str:
        """Return a policy's name; raises KeyError if there is no such policy."""
        return {policy.number: policy.name for policy in self.policies}[number]


_SLOWDOWN_MOST = 100
HP_REQUEST_LEAST = 0.5
_SMS_MOST = 65_535
_MINUTE_US = 60_000_000

RELEASE = Table(
    policies=(
        Policy("orion", 2, "be waits while hp is busy, except when the maximum slowdown allows overlap"),
        Policy("gate", 1, "be always waits while hp is busy"),
        Policy("none", 0, "be never waits"),
    ),
    rows=(
        Row(
            "window", Unit.MICROSECONDS, 50, 1_000_000, 400,
            "Limit of the be work in flight, in expected time: an hp launch waits at most that long. Larger: more be "
            "throughput.",
            share="tuning.window",
        ),
        Row(
            "linger_floor", Unit.MICROSECONDS, 1, 1_000_000, 50,
            "hp counts as busy for at least this time after its work is complete.",
            share="tuning.linger.floor",
        ),
        Row(
            "linger_ceiling", Unit.MICROSECONDS, 1, 1_000_000, 2_000,
            "hp counts as busy for at most this time after its work is complete.",
            share="tuning.linger.ceiling",
        ),
        Row(
            "stall", Unit.MILLISECONDS, 10, 600_000, 1_000,
            "be stops waiting for an hp client that has been busy for this time without completing any work.",
        ),
        Row(
            "max_slowdown", Unit.RATIO, 1, _SLOWDOWN_MOST, 1,
            "hp's work may take this many times as long as on a GPU of its own, such as 1.2.",
            "no overlap", by_hp=True,
            share="maxSlowdown", policies=("orion",),
        ),
        Row(
            "sharing_cost", Unit.RATIO, 1, _SLOWDOWN_MOST, 1,
            "Sharing a context (MPS) alone makes hp's work take this many times as long, as measured, such as 1.07.",
            "not known", by_hp=True,
            share="tuning.sharingCost", policies=("orion",),
        ),
        Row(
            "overlap", Unit.SMS, 0, _SMS_MOST, 0,
            "SMs that long be kernels may use while hp is busy.",
            "half of the GPU's",
            share="tuning.overlapSMs", policies=("orion",),
        ),
        Row(
            "request", Unit.RATIO, HP_REQUEST_LEAST, 1, 1,
            "hp is sure of this part of the GPU's time; be is sure of the rest, however busy hp is.",
            "no floor for be", rest_word="minimum_share",
            share="compute.request",
        ),
        Row(
            "long_kernel", Unit.MICROSECONDS, 1, _MINUTE_US, 5_000,
            "be kernels that take longer leave SMs to hp if contexts run together, and a condition names them.",
            share="tuning.longKernel", policies=("orion",),
        ),
        Row(
            "be_slice", Unit.MICROSECONDS, 0, 100_000, 0,
            "Time slice of a GPU's only active be client beside hp, if contexts are time-sliced.",
            "CUDA's own",
            share="tuning.beSlice",
        ),
        Row(
            "hp_slice", Unit.MICROSECONDS, 0, 1_000_000, 0,
            "Time slice of a GPU's only hp client beside be, if contexts are time-sliced.",
            "CUDA's own",
        ),
    ),
)  # fmt: skip

BENCH = Table(
    policies=(
        *RELEASE.policies,
        Policy("streams", 16, "be never waits; hp's streams have priority"),
        Policy("reef", 17, "REEF-N, as Orion's authors coded it"),
        Policy("ticktock", 18, "Tick-Tock: iterations of two trainers alternate"),
        Policy("orion-2024", 19, "Orion (EuroSys'24), as its authors coded it"),
    ),
    rows=RELEASE.rows,
    appended=(
        Row("reef_depth", Unit.NUMBER, 1, 4_096, 12, "reef: be launches queued on the GPU."),
        Row("orion_2024", Unit.SMS, 0, _SMS_MOST, 0, "orion-2024: SMs that a be kernel may need.", "all"),
        Row("orion_2024_duration", Unit.MICROSECONDS, 1, _MINUTE_US, 160, "orion-2024: be work before a drain."),
    ),
)

BASELINES = "ORION_BASELINES"
""" This variable is 1 in the environment of those processes of `orion bench` that use the table `BENCH`. """

TABLE = BENCH if os.environ.get(BASELINES) == "1" else RELEASE
""" The table that this process uses. """


def is_baseline(policy: str) -> bool:
    """Return whether only `BENCH` has the policy."""
    return policy in BENCH.names and policy not in RELEASE.names
