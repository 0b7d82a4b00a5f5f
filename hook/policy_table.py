"""All policies, and all fields of a policy: one row each, from which every other form is made.

Made from it: the words of the policy page (``hook/include/orion/policy.h``, by ``hook.generate``; ``hook/layout.py``),
the agent's settings, requests and answers, the options of ``orion policy set``, ``orion agent`` and ``orion run``,
fields of GPUShares and grants, and what scenarios of ``orion bench`` may say. To add a field: a row here, behind the
last; ``LAYOUT_VERSION`` in ``hook/layout.py`` plus one; the code that reads the field in ``hook/src``. Then
`make generate`.

The order of rows is the order of words in the page, so rows are only ever appended.

``BENCH`` adds re-implementations of published schedulers, for comparison. They exist in the library that `orion bench`
preloads and in the agent that it starts (``ORION_BASELINES=1`` in that agent's environment); nowhere else.
"""

import os
from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """In what people give a value, and what a page holds: both as suffixes of names, and the factor between them."""

    MICROSECONDS = ("_us", "_ns", 1_000)
    MILLISECONDS = ("_ms", "_ns", 1_000_000)
    RATIO = ("", "_milli", 1_000)
    SMS = ("_sms", "_sms", 1)
    NUMBER = ("", "", 1)

    def __init__(self, suffix: str, page_suffix: str, factor: int) -> None:
        self.suffix, self.page_suffix, self.factor = suffix, page_suffix, factor

    @property
    def is_time(self) -> bool:
        """Whether it is one."""
        return self.page_suffix == "_ns"

    @property
    def size(self) -> int:
        """Bytes of a word in the page: times have 64 bits, all else 32."""
        return 8 if self.is_time else 4


@dataclass(frozen=True)
class Row:
    """One field of a policy.

    Attributes:
        stem: its name without the unit.
        unit: in what people give it.
        least: the lowest value that is allowed, in that unit.
        most: the highest one.
        default: what holds where nobody says anything.
        sentence: what it does, for people, without its unit, its bounds and its default.
        default_is: what the default means, where its number does not say so.
        by_hp: whether `orion run --priority hp` has an option for it.
        share: its path in a GPUShare's spec; empty: a share does not have it.
        policies: those that heed it.
    """

    stem: str
    unit: Unit
    least: float
    most: float
    default: float
    sentence: str
    default_is: str = ""
    by_hp: bool = False
    share: str = ""
    policies: tuple[str, ...] = ("orion", "gate")

    @property
    def name(self) -> str:
        """What settings, requests and options call it."""
        return f"{self.stem}{self.unit.suffix}"

    @property
    def word(self) -> str:
        """What the page calls it."""
        return f"{self.stem}{self.unit.page_suffix}"

    @property
    def granted(self) -> str:
        """What a pod's grant calls it: whole numbers, so ratios are in thousandths."""
        return self.word if self.unit is Unit.RATIO else self.name

    @property
    def kind(self) -> type[int] | type[float]:
        """What a value of it is in Python."""
        return float if self.unit is Unit.RATIO else int

    def to_page(self, value: float) -> int:
        """Return a value as the page has it."""
        return round(value * self.unit.factor)

    def from_page(self, word: int) -> float:
        """Return what the page has as people give it."""
        return word / self.unit.factor if self.kind is float else word // self.unit.factor

    def within(self, word: int) -> int:
        """Return the value of a page within the bounds."""
        return min(max(word, self.to_page(self.least)), self.to_page(self.most))


@dataclass(frozen=True)
class Policy:
    """One policy.

    Attributes:
        name: what people call it.
        number: what the page calls it.
        sentence: what be waits for under it.
    """

    name: str
    number: int
    sentence: str


SIZE = 128
""" Bytes of `struct orion_policy`. """

_HEAD = [("sequence", 8, 1), ("kind", 4, 1), ("reserved", 4, 1)]


def _aligned(words: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return the words with the padding between them that a compiler would insert, by name."""
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
    """ At the end of the page's structure, behind everything that the release may still append. """

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """All fields."""
        return self.rows + self.appended

    @property
    def names(self) -> tuple[str, ...]:
        """The policies' names."""
        return tuple(policy.name for policy in self.policies)

    def words(self) -> list[tuple[str, int, int]]:
        """Return the members of `struct orion_policy`: name, bytes of a word, number of words."""
        head = _HEAD + [(row.word, row.unit.size, 1) for row in self.rows]
        tail = [(row.word, row.unit.size, 1) for row in self.appended]
        spare = SIZE - _end(head) - _end(tail)
        return [*_aligned(head), ("spare", 4, spare // 4), *tail]

    def number(self, name: str) -> int:
        """Return a policy's number; KeyError: there is no such policy."""
        return {policy.name: policy.number for policy in self.policies}[name]

    def name(self, number: int) -> str:
        """Return a policy's name; KeyError: there is no such policy."""
        return {policy.number: policy.name for policy in self.policies}[number]


_SLOWDOWN_MOST = 100
_SHARE_MOST = 0.5
_SMS_MOST = 65_535
_MINUTE_US = 60_000_000

RELEASE = Table(
    policies=(
        Policy("orion", 2, "be waits while hp is busy, except for what the maximum slowdown allows"),
        Policy("gate", 1, "be always waits while hp is busy"),
        Policy("none", 0, "nobody waits"),
    ),
    rows=(
        Row(
            "window", Unit.MICROSECONDS, 50, 1_000_000, 400,
            "Expected time of the be work in flight: how long an hp launch may wait. Larger: more be throughput.",
            share="tuning.window",
        ),
        Row(
            "linger_floor", Unit.MICROSECONDS, 1, 1_000_000, 50,
            "hp counts as busy for at least this time after its work has drained.",
            share="tuning.linger.floor",
        ),
        Row(
            "linger_ceiling", Unit.MICROSECONDS, 1, 1_000_000, 2_000,
            "hp counts as busy for at most this time after its work has drained.",
            share="tuning.linger.ceiling",
        ),
        Row(
            "stall", Unit.MILLISECONDS, 10, 600_000, 1_000,
            "be no longer waits for an hp client that is busy this long without completing anything.",
        ),
        Row(
            "max_slowdown", Unit.RATIO, 1, _SLOWDOWN_MOST, 1,
            "How much longer hp's work may take than on a GPU of its own, such as 1.2.",
            "no overlap", by_hp=True,
            share="maxSlowdown", policies=("orion",),
        ),
        Row(
            "sharing_cost", Unit.RATIO, 1, _SLOWDOWN_MOST, 1,
            "How much longer hp's work takes only because it shares a context (MPS), as measured, such as 1.07.",
            "not known", by_hp=True,
            share="tuning.sharingCost", policies=("orion",),
        ),
        Row(
            "overlap", Unit.SMS, 0, _SMS_MOST, 0,
            "SMs that long be kernels have while hp is busy.",
            "half of the GPU's",
            share="tuning.overlapSMs", policies=("orion",),
        ),
        Row(
            "minimum_share", Unit.RATIO, 0, _SHARE_MOST, 0,
            "be runs for at least this share of the time, however busy hp is.",
            "no floor", by_hp=True,
            share="minimumShare",
        ),
        Row(
            "long_kernel", Unit.MICROSECONDS, 1, _MINUTE_US, 5_000,
            "Longer be kernels leave SMs to hp where contexts are shared, and a condition names them.",
            share="tuning.longKernel", policies=("orion",),
        ),
    ),
)  # fmt: skip

BENCH = Table(
    policies=(
        *RELEASE.policies,
        Policy("streams", 16, "nothing waits; hp's streams have priority"),
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
""" Set to 1 in the environment of the processes of `orion bench` that work with the library of `BENCH`. """

TABLE = BENCH if os.environ.get(BASELINES) == "1" else RELEASE
""" What this process works with. """


def is_baseline(policy: str) -> bool:
    """Return whether only `BENCH` has it."""
    return policy in BENCH.names and policy not in RELEASE.names
