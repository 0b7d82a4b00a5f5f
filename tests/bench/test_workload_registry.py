"""The workloads by name; names and options are known and checked without torch and without a GPU."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import orion.bench.workloads
from orion.bench.workloads import KINDS, check, load, options_of
from orion.errors import Invalid

HERE = Path(orion.bench.workloads.__file__).parent
REAL = [name for name, kind in KINDS.items() if kind.stand_in is not None]


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("resnet51", {}, "there is no workload 'resnet51'; there are resnet50-inference,"),
        ("gemm", {"sise": 2}, "gemm has no option 'sise'; it has stream_priority, size, products"),
        ("gemm", {"size": "2048"}, "gemm: option size is '2048'; it must be a valid integer"),
        ("gemm", {"products": 0}, "gemm: option products is 0; it must be greater than or equal to 1"),
        ("gpt-decode", {"batch": True}, "gpt-decode: option batch is True; it must be a valid integer"),
        ("bert-inference", {"length": 513}, "bert-inference: option length is 513; it must be less than or equal to"),
        (
            "resnet50-inference",
            {"mode": "jit"},
            "resnet50-inference: option mode is 'jit'; it must be 'graph', 'eager' or 'compile'",
        ),
        ("gpt-training", {"stall": 1.0}, "gpt-training: option stall is 1.0; it must be less than or equal to 0.95"),
        ("gpt-training", {"stall": 0.3, "stall_ms": 2}, "gpt-training: give either stall or stall_ms, not both"),
        ("long-kernel", {"ms": float("nan")}, "long-kernel: option ms is nan;"),
        ("simulated-inference", {"parts": 3}, "simulated-inference: 8 kernels cannot be divided into 3 equal parts"),
    ],
)
def test_an_invalid_option_is_rejected_in_one_sentence(kind: str, options: dict[str, Any], said: str) -> None:
    for simulated in (False, True):
        with pytest.raises(Invalid) as refused:
            load(kind, options, simulated)
        assert str(refused.value).startswith(said)
        assert "\n" not in str(refused.value)


def test_names_and_options_need_neither_torch_nor_cuda() -> None:
    code = (
        "import sys; from orion.bench.workloads import KINDS, options_of; [options_of(kind) for kind in KINDS];"
        "assert not {'torch', 'cuda', 'cuda.bindings'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_of_every_workload_exists(kind: str) -> None:
    module, name = KINDS[kind].factory.split(":")
    tree = ast.parse((HERE / f"{module.replace('.', '/')}.py").read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_has_a_meaning_and_allowed_values(kind: str) -> None:
    for row in options_of(kind):
        assert row.meaning, row
        assert row.allowed, row
        if row.default is not None:
            check(kind, {row.name: row.default})


def test_a_workloads_own_options_come_first() -> None:
    assert [row.name for row in options_of("gemm")] == ["size", "products", "stream_priority"]
    (mode,) = (row for row in options_of("gpt-decode") if row.name == "mode")
    assert (mode.default, mode.allowed) == ("graph", "graph, eager, compile")


@pytest.mark.parametrize("kind", REAL)
def test_every_workload_has_a_stand_in(kind: str) -> None:
    assert load(kind, {}, simulated=False) == (kind, {})
    name, options = load(kind, {}, simulated=True)
    assert name.startswith("simulated-")
    check(name, options)


def test_a_simulated_workload_is_its_own_stand_in() -> None:
    assert load("simulated-training", {"kernels": 3}, simulated=True) == ("simulated-training", {"kernels": 3})


def milliseconds(kind: str, **options: Any) -> float:
    _, step = load(kind, options, simulated=True)
    return float(step["kernel_us"] * step["kernels"] / 1e3 + step.get("stall_ms", 0))


def test_stand_ins_take_about_as_long_as_an_h200() -> None:
    assert milliseconds("resnet50-inference") == pytest.approx(4.3, rel=0.05)
    assert milliseconds("resnet50-inference", batch=4) == pytest.approx(0.93, rel=0.05)
    assert milliseconds("gpt-decode") == pytest.approx(31, rel=0.05)
    assert milliseconds("resnet50-training") == pytest.approx(54, rel=0.05)
    assert milliseconds("resnet50-training", stall=0.25) == pytest.approx(72, rel=0.05)
    assert milliseconds("resnet50-training", stall_ms=10.0) == pytest.approx(64, rel=0.05)
    assert milliseconds("gemm") == pytest.approx(8 * 1.8, rel=0.05)
    assert milliseconds("long-kernel", ms=50.0) == pytest.approx(100)


def test_stand_ins_have_the_same_launches_waits_and_priorities() -> None:
    _, sampled = load("gpt-decode", {"tokens": 16}, simulated=True)
    _, queued = load("gpt-decode-unsynchronised", {"tokens": 16}, simulated=True)
    assert (sampled["parts"], queued.get("parts", 1)) == (16, 1)
    assert sampled["kernels"] == queued["kernels"]
    _, long = load("long-kernel", {"ms": 50.0}, simulated=True)
    assert (long["kernel_us"], long["kernels"], long["sms"]) == (50_000, 2, 132)
    _, training = load("bert-training", {"stream_priority": "high"}, simulated=True)
    assert training["queued"]
    assert training["stream_priority"] == "high"
    assert not load("bert-training", {"sync_each_step": True}, simulated=True)[1]["queued"]
    assert load("spin", {"blocks": 16}, simulated=True)[1]["sms"] == 16
