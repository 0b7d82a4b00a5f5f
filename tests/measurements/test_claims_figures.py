"""The tables of the experiments about claims, and how they read a series of states."""

from measurements.cluster.claims import slices, starts
from measurements.cluster.claims.figures import Figure, table


def test_a_row_has_median_p99_and_the_largest_value() -> None:
    seconds = [number / 1000 for number in range(1, 201)]
    rows = table([Figure("calls", seconds, "p99 <= 30 ms", "ms"), Figure("writes", [0], "0", "writes")]).splitlines()
    assert rows[2] == "| calls | 100.5 ms | 199.0 ms | 200.0 ms | 200 | p99 <= 30 ms |"
    assert rows[3] == "| writes | 0 writes | 0 writes | 0 writes | 1 | 0 |"


def test_what_was_never_seen_is_said() -> None:
    assert table([Figure("the sentence", [], "<= 3 s")]).endswith("| the sentence | not seen | | | 0 | <= 3 s |")


def test_the_last_state_counts_from_its_last_beginning() -> None:
    assert slices._since_when([(1.0, True), (2.0, False), (3.0, True), (4.0, True)]) == 3.0
    assert slices._since_when([]) == 0.0


def test_starts_are_compared_within_a_round() -> None:
    turns = [{"plain": [4.0], "claims": [5.0], "first": [6.0]}, {"plain": [8.0], "claims": [8.0], "first": [10.0]}]
    raw = {
        "sizes": {"pods": 40},
        "rounds": [{kind: {"running_s": [1.0, *last]} for kind, last in turn.items()} for turn in turns],
    }
    values = {figure.what: list(figure.values) for figure in starts.figures(raw)}
    assert values["claims / plain of the same round"] == [1.25, 1.0]
    assert values["more than with the template, in the same round"] == [1.0, 2.0]
