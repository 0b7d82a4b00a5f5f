"""Orion's performance targets on an H200, and the check whether a summary meets them.

Each target is judged by medians of paired ratios; the tables have the intervals. If `gate` and `orion` both count for a
target, one of the two policies has to reach it on all pairs. If only some pairs of a target were measured and all of
them reach it, the target is `incomplete`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from orion.bench.colocation import target_pairs as which
from orion.bench.colocation.summary import Figure, PairFigures, Status, SystemFigures, Verdict
from orion.bench.colocation.target_pairs import Asked, Found, find

POLICIES = ("gate", "orion")
LONG_KERNEL_NOISE = 1.05
"""Two values of hp's p99 beside kernels of 50 ms count as equal if their ratio is at most this."""


@dataclass(frozen=True)
class Finding:
    """The result of one policy for a target."""

    holds: bool
    complete: bool
    """Whether all pairs of the target were measured."""
    words: str


Judge = Callable[[Sequence[PairFigures]], list[Finding]]


@dataclass(frozen=True)
class Target:
    """One performance target."""

    name: str
    asked: str
    judge: Judge
    """Returns the findings of the measured policies; the target is reached if one finding holds."""

    def verdict(self, pairs: Sequence[PairFigures]) -> Verdict:
        """Judge the measured pairs."""
        findings = self.judge(pairs)
        if not findings:
            return Verdict(target=self.name, asked=self.asked, status="not measured", figures="")
        held = [finding for finding in findings if finding.holds]
        status: Status = "missed" if not held else "met" if any(one.complete for one in held) else "incomplete"
        words = "; ".join(finding.words for finding in findings)
        return Verdict(target=self.name, asked=self.asked, status=status, figures=words)


def judge_all(pairs: Sequence[PairFigures]) -> list[Verdict]:
    """Judge every target."""
    return [target.verdict(pairs) for target in TARGETS]


def _by_policy(
    pairs: Sequence[PairFigures], asked: Sequence[Asked], figure: Callable[[Found], float | None]
) -> list[tuple[str, dict[str, float], bool]]:
    """Return (policy, figures by pair, whether all pairs have a figure) for each measured policy of mode timeslice."""
    rows = []
    for policy in POLICIES:
        found = find(pairs, asked, "timeslice", policy, with_budget=False)
        values = {one.name: value for one in found if (value := figure(one)) is not None}
        if values:
            rows.append((policy, values, {one.asked for one in found if figure(one) is not None} == set(asked)))
    return rows


def _p99(found: Found) -> float:
    return found.system.latency["p99"].median


def _be_over_bound(found: Found) -> float | None:
    figure = found.system.be_over_bound
    return figure.median if figure else None


def _gemm_excess(found: Found) -> float:
    """Return hp's p99 minus 1.05 x hp's p99 alone, in ms; the median over rounds."""
    alone = dict(zip(found.pair.rounds, found.pair.alone_ms["p99"], strict=True))
    own = zip(found.system.rounds, found.system.latency_ms["p99"], strict=True)
    return median(p99 - 1.05 * alone[number] for number, p99 in own)


def _mean_tail(pairs: Sequence[PairFigures]) -> list[Finding]:
    findings = []
    for policy, values, complete in _by_policy(pairs, which.BESIDE_TRAINING, _p99):
        mean = sum(values.values()) / len(values)
        words = f"{policy}: mean {mean:.3f} over {len(values)} of {len(which.BESIDE_TRAINING)} pairs"
        findings.append(Finding(mean <= 1.02, complete, words))
    return findings


def _extreme(
    pairs: Sequence[PairFigures],
    asked: Sequence[Asked],
    figure: Callable[[Found], float | None],
    limit: float,
    at_least: bool,
) -> list[Finding]:
    """Judge the worst pair of each policy."""
    findings = []
    for policy, values, complete in _by_policy(pairs, asked, figure):
        worst = (min if at_least else max)(values, key=lambda name: values[name])
        holds = values[worst] >= limit if at_least else values[worst] <= limit
        words = f"{policy}: worst {values[worst]:.3f} ({worst}), {len(values)} of {len(asked)} pairs"
        findings.append(Finding(holds, complete, words))
    return findings


def _best_total(
    pairs: Sequence[PairFigures], asked: Sequence[Asked], mode: str, within: float, total: float
) -> list[Finding]:
    """Judge the point with the highest hp + be, among those whose hp p99 is within the limit."""
    points = [
        (one.system.total.median, _p99(one), one.system.system)
        for one in find(pairs, asked, mode, "orion", with_budget=True)
        if one.system.total is not None
    ]
    if not points:
        return []
    inside = [point for point in points if point[1] <= within]
    if not inside:
        fastest = min(points, key=lambda point: point[1])
        return [Finding(False, True, f"no point; the lowest p99 is {fastest[1]:.2f} x alone ({fastest[2]})")]
    best = max(inside)
    return [Finding(best[0] >= total, True, f"{best[0]:.3f} at {best[1]:.2f} x alone ({best[2]})")]


def _of_ceiling(pairs: Sequence[PairFigures]) -> list[Finding]:
    worst: dict[str, tuple[float, str]] = {}
    for one in find(pairs, which.CEILING, "mps", "orion", with_budget=True):
        if one.system.of_ceiling is not None:
            here = (one.system.of_ceiling.median, one.system.system)
            worst[str(one.asked)] = min(here, worst.get(str(one.asked), here))
    if not worst:
        return []
    words = ", ".join(f"{pair} {value:.3f} ({system})" for pair, (value, system) in worst.items())
    holds = all(value >= 0.97 for value, _ in worst.values())
    return [Finding(holds, len(worst) == len(which.CEILING), words)]


def _long_kernels(pairs: Sequence[PairFigures], mode: str, factor: float) -> list[Finding]:
    """Compare hp p99 with the gate's p99 in the same rounds or, without such rounds, with `BEHIND_LONG_KERNELS`."""
    best: dict[str, tuple[float, str]] = {}
    for asked, reference_ms in which.BEHIND_LONG_KERNELS:
        for one in find(pairs, [asked], mode, "orion", with_budget=mode == "mps"):
            own, gate = _p99_ms(one.system), _gate_p99_ms(one.pair)
            paired = [own[number] / gate[number] for number in own if number in gate]
            ratio = median(paired or [p99 / reference_ms for p99 in own.values()])
            beside = "gate" if paired else f"the gate's {reference_ms:g} ms of the reference measurement"
            title = asked.hp.title
            words = f"{title} {median(own.values()):.1f} ms, {ratio:.2f} x {beside} ({one.system.system})"
            best[title] = min((ratio, words), best.get(title, (ratio, words)))
    if not best:
        return []
    holds = all(ratio <= factor for ratio, _ in best.values())
    listed = ", ".join(words for _, words in best.values())
    return [Finding(holds, len(best) == len(which.BEHIND_LONG_KERNELS), listed)]


def _p99_ms(system: SystemFigures) -> dict[int, float]:
    return dict(zip(system.rounds, system.latency_ms["p99"], strict=True))


def _gate_p99_ms(pair: PairFigures) -> dict[int, float]:
    """Return hp p99 under policy gate in mode timeslice, by round."""
    return next((_p99_ms(each) for each in pair.systems if which.is_orion(each, "timeslice", "gate")), {})


def _training(pairs: Sequence[PairFigures]) -> list[Finding]:
    findings = []
    for policy in POLICIES:
        for one in find(pairs, which.STALLED, "timeslice", policy, with_budget=False):
            iteration, be = one.system.iteration, one.system.be
            if iteration is not None and be is not None:
                of_stall = be.median / 0.3
                words = f"{policy}: iteration {iteration.median:.3f}, be {of_stall:.2f} of the stall ({one.pair.name})"
                findings.append(Finding(iteration.median <= 1.05 and of_stall >= 0.9, True, words))
    return findings


def _four_clients(pairs: Sequence[PairFigures]) -> list[Finding]:
    findings = []
    for pair in pairs:
        if len(pair.be) != 4:
            continue
        for system in pair.systems:
            if system.unfairness is None or not any(which.is_orion(system, "timeslice", each) for each in POLICIES):
                continue
            one = _beside_one(pairs, pair, system.system)
            words = f"{system.system}: {100 * system.unfairness.median:.1f} % from the fair share"
            p99 = system.latency["p99"]
            if one is not None:
                words += f", hp p99 {p99.median:.3f} against {one.median:.3f} beside one ({pair.name})"
            same = one is None or p99.low <= one.high
            findings.append(Finding(system.unfairness.median <= 0.03 and same, one is not None, words))
    return findings


def _beside_one(pairs: Sequence[PairFigures], four: PairFigures, system: str) -> Figure | None:
    """Return hp's p99 beside one be client with the same workload under the same system; None if not measured."""
    for pair in pairs:
        alike = len(pair.be) == 1 and pair.be[0].workload == four.be[0].workload
        if alike and pair.hp.id == four.hp.id and pair.be[0].options == four.be[0].options:
            for each in pair.systems:
                if each.system == system:
                    return each.latency["p99"]
    return None


TARGETS: tuple[Target, ...] = (
    Target("hp's tail, mean", "beside ResNet-50 and BERT training, hp p99 / alone <= 1.02 on average", _mean_tail),
    Target(
        "hp's tail, worst",
        "beside ResNet-50 and BERT training, hp p99 / alone <= 1.05",
        partial(_extreme, asked=which.BESIDE_TRAINING, figure=_p99, limit=1.05, at_least=False),
    ),
    Target(
        "hp's tail beside GEMM",
        "hp p99 - 1.05 x alone <= 2 ms",
        partial(_extreme, asked=which.BESIDE_GEMM, figure=_gemm_excess, limit=2.0, at_least=False),
    ),
    Target(
        "be's share",
        "be / (0.97 x (1 - hp share - busy periods per second x 0.15 ms)) >= 1",
        partial(
            _extreme,
            asked=which.BESIDE_TRAINING + which.BESIDE_GEMM,
            figure=_be_over_bound,
            limit=1.0,
            at_least=True,
        ),
    ),
    *(
        Target(
            f"overlap at {within:g}",
            f"mps, decode b1 without a sync per token beside GEMM: hp + be >= {total:g} at p99 <= {within:g} x alone",
            partial(_best_total, asked=which.OVERLAP, mode="mps", within=within, total=total),
        )
        for within, total in ((1.3, 1.06), (1.5, 1.12), (2.2, 1.18))
    ),
    Target(
        "overlap against the ceiling",
        "mps, decode and ResNet-50 b4 beside GEMM and ResNet-50 training: >= 0.97 of the queueing model",
        _of_ceiling,
    ),
    Target(
        "overlap among threads",
        "threads of one process, decode b1 beside GEMM: hp + be >= 1.10 at hp p99 <= 1.3 x alone",
        partial(_best_total, asked=which.DECODE_BESIDE_GEMM, mode="threads", within=1.3, total=1.10),
    ),
    Target(
        "long kernels",
        f"timeslice, beside 50 ms kernels: hp p99 <= {LONG_KERNEL_NOISE} x the gate's",
        partial(_long_kernels, mode="timeslice", factor=LONG_KERNEL_NOISE),
    ),
    Target(
        "long kernels under MPS",
        "mps with half of the SMs left to hp, beside 50 ms kernels: hp p99 <= 0.7 x the gate's in timeslice",
        partial(_long_kernels, mode="mps", factor=0.7),
    ),
    Target(
        "hp training",
        "30 % input stall beside training: hp iteration time / alone <= 1.05 and be >= 0.9 of the stall",
        _training,
    ),
    Target(
        "fairness",
        "1 hp + 4 be: each be within 3 % of its fair share, hp p99 the same as beside one be",
        _four_clients,
    ),
)
