"""The kept raw data of the services on an H200 give the headline figures of docs/results/services-on-h200.md."""

from pathlib import Path

import pytest

from orion.bench import raw_data
from orion.bench.colocation import packing
from orion.bench.services import choosing, comparing, predicting
from orion.bench.services.measured import Measured, latencies_ms
from orion.errors import NotFound

RAW = Path(__file__).parents[2] / "docs/results/raw/services.tgz"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("services") / "raw"
    packing.unpack(RAW, folder)
    return Measured(folder)


def test_the_constants_of_the_gpu_are_those_of_the_page(measured: Measured) -> None:
    assert measured.slices.slice_ms == pytest.approx(2.111, abs=0.001)
    assert measured.slices.change_ms == pytest.approx(0.138, abs=0.001)
    assert measured.engine_us["stepBase"] == pytest.approx(2687, abs=1)
    assert measured.engine_us["prefillToken"] == pytest.approx(6.93, abs=0.01)


def test_loops_without_slices_are_named(tmp_path: Path) -> None:
    """As with `--device fake`. Before, the sentence named a temporary file that had a change of less than 0 ms."""
    folder = tmp_path / "raw"
    packing.unpack(RAW, folder)
    for path in folder.glob("runs/beside/*slices*.json.gz"):
        run = raw_data.read(path)
        for loop in run["loops"]:
            loop["ends_us"] = [[end / 2 for end in ends] for ends in loop["ends_us"]]
        raw_data.write(path, run)
    with pytest.raises(NotFound, match="has no slices in its closed loops"):
        _ = Measured(folder).slices


def test_a_prediction_reads_nothing_of_its_run_but_the_arrivals(measured: Measured) -> None:
    run = next(run for name, run in measured.runs("pairs") if name == "resnet-prefill-0.35-part-50-50")
    before = {name: list(found.ends) for name, found in predicting.pair(measured, run).items()}
    for each in run["services"]:
        each["batches_us"] = []
    assert {name: list(found.ends) for name, found in predicting.pair(measured, run).items()} == before


@pytest.mark.parametrize("way", ["slices", "part-40-60", "edf"])
def test_the_predicted_latencies_of_a_run_are_near_the_measured_ones(measured: Measured, way: str) -> None:
    run = next(run for name, run in measured.runs("pairs") if name == f"decode-prefill-0.65-{way}")
    predicted = predicting.pair(measured, run)
    for each in run["services"]:
        found = predicted[each["service"]]
        latencies = [1e3 * (end - begin) for begin, end in zip(found.arrivals, found.ends, strict=True)]
        compared = comparing._compared("", way, "", "latency", latencies_ms(each), latencies)
        assert compared.is_within, compared


def test_the_planner_chooses_the_measured_best_way_for_a_pair_with_and_without_long_batches(measured: Measured) -> None:
    scores = comparing.scores(measured)
    for pair, expected in ((("resnet", "bert"), "edf"), (("resnet", "decode"), "part-40-60")):
        rates = next(
            [each["rate"] for each in run["services"]]
            for _, run in measured.runs("pairs")
            if tuple(run["pair"]) == pair and run["load"] == 0.35
        )
        way = choosing.way_of(choosing.planned(measured, pair, rates, "orion"), pair)
        assert way == expected
        assert choosing.Choice(pair, 0.35, way, scores[*pair, 0.35]).is_best
