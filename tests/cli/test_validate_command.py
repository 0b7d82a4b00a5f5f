"""`orion simulate validate`: predictions beside measurements; archives that are broken, hostile or of another GPU."""

import contextlib
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orion.bench.colocation import packing
from orion.cli.main import main

RAW = Path(__file__).parents[2] / "docs" / "results" / "raw"
BERT = "bert-inference-batch-16-poisson-0.5"
TRAINER = "resnet50-training-stall-0.3-closed"
TWELVE = ("bert-inference", "gpt-decode-batch", "resnet50-inference-batch-64")
TRAININGS, PRODUCTS = ("bert-training", "resnet50-training"), "gemm-size-8192"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main(["simulate", "validate", *map(str, arguments)])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "essentials"
    packing.unpack(RAW / "essentials.tgz", folder)
    return folder


@pytest.fixture(scope="module")
def essentials() -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["simulate", "validate", str(RAW / "essentials.tgz"), "--json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@pytest.fixture
def small(whole: Path, tmp_path: Path) -> Path:
    """Return a folder with one round of one hp, and with a trainer."""
    folder = tmp_path / "small"
    for path in (f"runs/{BERT}/0", f"runs/{TRAINER}"):
        shutil.copytree(whole / path, folder / path)
    return folder


def report(call: Call, archive: Path) -> dict[str, Any]:
    status, out, _ = call(archive, "--json")
    assert status == 0
    found: dict[str, Any] = json.loads(out)
    return found


def rewrite(path: Path, **fields: Any) -> None:
    run = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps({**run, **fields}).encode()))


def test_the_twelve_time_sliced_pairs_are_predicted_within_their_limits(essentials: dict[str, Any]) -> None:
    chosen = [
        pair
        for pair in essentials["pairs"]
        if pair["hp"].startswith(TWELVE) and pair["be"] in (*TRAININGS, PRODUCTS) and pair["system"] == "orion"
    ]
    assert len(chosen) == 12
    for pair in chosen:
        beside_training = pair["be"] in TRAININGS
        assert abs(pair["error"]["be"]) <= 0.05
        assert abs(pair["error"]["hp_p99"]) <= (0.08 if beside_training else 0.15)
        assert abs(pair["error"]["hp_p50"]) <= (0.10 if beside_training else 0.15)


@pytest.mark.parametrize("name", ["peers", "refreshed"])
def test_be_of_other_measurements_is_predicted(validate: Call, name: str) -> None:
    errors = [pair["error"]["be"] for pair in report(validate, RAW / f"{name}.tgz")["pairs"] if pair["predicted"]]
    assert len(errors) >= 3
    assert sum(abs(error) <= 0.08 for error in errors) >= len(errors) - 1  # a run of refreshed differs by 9 %


def test_predictions_do_not_change_without_the_runs_of_pairs(
    validate: Call, essentials: dict[str, Any], whole: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(whole, bare)
    for run in (bare / "runs").glob("*/*/*/*.json.gz"):
        if run.parent.name != "be-alone":
            run.unlink()
    packing.pack(bare, tmp_path / "bare.tgz")
    without = report(validate, tmp_path / "bare.tgz")
    keys = ("hp", "be", "system", "mode", "be_count", "hp_open_loop", "round", "predicted", "reason")
    one, other = ([{key: pair[key] for key in keys} for pair in each["pairs"]] for each in (essentials, without))
    assert json.dumps(one) == json.dumps(other)
    assert all(pair["measured"] is None for pair in without["pairs"])
    assert len(without["faults"]) == 64
    assert any(fault.endswith("/orion.json.gz is missing") for fault in without["faults"])


def test_the_object_has_the_fields_of_its_schema(essentials: dict[str, Any]) -> None:
    assert essentials["schema"] == "orion.simulate.validate/1"
    for pair in essentials["pairs"]:
        assert {"hp", "be", "system", "mode", "be_count", "hp_open_loop", "round", "predicted", "measured"} <= set(pair)
        assert pair["round"] is None
        assert (pair["predicted"] is None) == (pair["reason"] is not None)
        assert all(set(pair[side] or ()) in (set(), {"be", "hp_p50", "hp_p99"}) for side in ("predicted", "measured"))
    four = next(pair for pair in essentials["pairs"] if pair["be"] == "gemm-size-4096-x4")
    assert (four["be_count"], four["mode"]) == (4, "timeslice")
    trainer = next(pair for pair in essentials["pairs"] if pair["hp"] == TRAINER)
    assert trainer["hp_open_loop"] is False
    threads = next(pair for pair in essentials["pairs"] if pair["system"] == "threads-1.1")
    assert (threads["mode"], threads["predicted"]) == ("threads", None)


def test_a_table_shows_errors_and_what_is_not_predicted(validate: Call) -> None:
    status, out, err = validate(RAW / "peers.tgz")
    assert (status, err) == (0, "")
    assert "6 of 34 pairs predicted" in out
    assert "errors above their limit: 2 of 18" in out
    assert "not predicted: timeslice: no gate stops be" in out
    assert "%!" in out


def test_a_folder_without_a_scenario_is_searched_for_pairs(validate: Call, small: Path) -> None:
    found = report(validate, small)
    assert [(pair["hp"], pair["be"]) for pair in found["pairs"]] == [
        (BERT, "bert-training"), (BERT, PRODUCTS), (BERT, "resnet50-training"), (TRAINER, "bert-training"),
    ]  # fmt: skip
    assert all(pair["predicted"] and pair["measured"] for pair in found["pairs"])


def test_an_hp_without_pairs_is_predicted_beside_each_be_alone(validate: Call, small: Path) -> None:
    before = report(validate, small)
    for run in (small / "runs").glob("*/*/*/*.json.gz"):
        if run.parent.name != "be-alone":
            run.unlink()
            run.parent.rmdir()
    after = report(validate, small)
    assert [pair["predicted"] for pair in after["pairs"]] == [pair["predicted"] for pair in before["pairs"]]


def test_a_broken_run_is_named_and_the_rest_goes_on(validate: Call, small: Path) -> None:
    (small / "runs" / BERT / "0" / "be-alone" / f"{PRODUCTS}.json.gz").write_bytes(b"no gzip")
    rewrite(small / "runs" / BERT / "0" / "bert-training" / "orion.json.gz", arrivals=[1.0], starts=[1.0], ends=[2.0])
    found = report(validate, small)
    products = next(pair for pair in found["pairs"] if pair["be"] == PRODUCTS)
    assert products["predicted"] is None
    assert products["reason"] == "be alone is missing in the rounds of hp alone"
    assert products["measured"]["be"] is None
    training = next(pair for pair in found["pairs"] if (pair["hp"], pair["be"]) == (BERT, "bert-training"))
    assert training["predicted"]
    assert training["measured"] is None
    assert any(f"{PRODUCTS}.json.gz is broken" in fault for fault in found["faults"])
    assert any("does not count" in fault for fault in found["faults"])
    status, out, err = validate(small)
    assert (status, "is broken" in err, "3 of 4 pairs predicted" in out) == (0, True, True)


def test_absurd_figures_do_not_count(validate: Call, small: Path) -> None:
    path = small / "runs" / BERT / "0" / "be-alone" / "bert-training.json.gz"
    client = json.loads(gzip.decompress(path.read_bytes()))["be"][0]
    rewrite(path, be=[{**client, "amount": 5e-324}])
    with pytest.warns(RuntimeWarning):
        found = report(validate, small)
    training = next(pair for pair in found["pairs"] if (pair["hp"], pair["be"]) == (BERT, "bert-training"))
    assert training["measured"] is None


def test_another_gpu_model_is_said(validate: Call, small: Path) -> None:
    rewrite(small / "runs" / BERT / "0" / "alone.json.gz", device={"model": "NVIDIA H100 80GB HBM3"})
    assert report(validate, small)["notes"] == [
        "small was measured on NVIDIA H100 80GB HBM3, but the constants are those of NVIDIA H200: expect larger errors"
    ]


def test_nothing_to_predict_is_refused(validate: Call, small: Path) -> None:
    for run in (small / "runs").glob("*/*/alone.json.gz"):
        run.unlink()
    status, out, err = validate(small, "--json")
    assert (status, out) == (1, "")
    assert "no pair could be predicted: hp alone is missing in all rounds" in err


def test_a_run_without_measured_requests_is_left_out(validate: Call, small: Path) -> None:
    rewrite(small / "runs" / BERT / "0" / "alone.json.gz", window=[1e6, 2e6])
    found = report(validate, small)
    assert [pair["predicted"] is None for pair in found["pairs"]] == [True, True, True, False]


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no tar", mtime=0), b"\x1f\x8b\x08\x00broken"],
    ids=["empty", "text", "compressed text", "broken gzip"],
)
def test_a_file_that_is_no_archive_is_refused(validate: Call, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(content)
    status, out, err = validate(tmp_path / "a.tgz")
    assert (status != 0, out) == (True, "")
    assert "is not a file that `orion bench pack` wrote" in err
    assert len(err.strip().splitlines()) == 1


def test_a_path_that_is_not_there_and_a_folder_without_runs_are_refused(validate: Call, tmp_path: Path) -> None:
    assert validate(tmp_path / "nothing.tgz")[0] == 1
    status, _, err = validate(tmp_path)
    assert status == 1
    assert "holds no runs of a colocation" in err
    with tarfile.open(tmp_path / "empty.tgz", "w:gz"):
        pass
    assert validate(tmp_path / "empty.tgz")[2].startswith(f"orion: {tmp_path}/empty.tgz holds no runs")


@pytest.mark.parametrize("name", ["../outside.json.gz", "/tmp/orion-outside.json.gz", "runs/../../outside.json.gz"])
def test_an_archive_that_leads_outside_is_refused(validate: Call, tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    status, _, err = validate(tmp_path / "a.tgz")
    assert status != 0
    assert len(err.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tgz"]
    assert not Path("/tmp/orion-outside.json.gz").exists()


def test_a_link_out_of_the_archive_is_refused(validate: Call, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("runs")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(member)
    status, _, err = validate(tmp_path / "a.tgz")
    assert status != 0
    assert "is not a file that `orion bench pack` wrote" in err
