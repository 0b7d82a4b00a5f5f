"""The workloads by name: summary, options, class and simulated stand-in of each.

This module does not import torch. Only the process that runs a torch workload imports torch.
"""

import importlib
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from orion.bench.workload import Place, Workload
from orion.bench.workloads import options as of
from orion.bench.workloads import ranks, stand_ins
from orion.bench.workloads.kind import Kind
from orion.bench.workloads.programs.kinds import PROGRAMS
from orion.bench.workloads.stand_ins import Load
from orion.errors import Invalid

HERE = __name__.rpartition(".")[0]


KINDS: dict[str, Kind] = {
    "resnet50-inference": Kind(
        "ResNet-50 requests", of.ResNet50Inference, "inference:ResNet50Inference", stand_ins.resnet50_inference
    ),
    "mobilenetv2-inference": Kind(
        "MobileNetV2 requests: small kernels",
        of.Convolutional,
        "inference:MobileNetV2Inference",
        stand_ins.mobilenetv2_inference,
    ),
    "bert-inference": Kind("BERT-base requests", of.BertInference, "inference:BertInference", stand_ins.bert_inference),
    "gpt-prefill": Kind(
        "a decoder of 24 layers reads prompts", of.GptPrefill, "inference:GptPrefill", stand_ins.gpt_prefill
    ),
    "gpt-decode": Kind(
        "the decoder generates; the CPU reads each token before the next",
        of.GptDecode,
        "decoding:GptDecode",
        stand_ins.gpt_decode,
    ),
    "gpt-decode-unsynchronised": Kind(
        "the decoder generates; the CPU queues all tokens of a request and waits once",
        of.GptDecode,
        "decoding:GptDecodeUnsynchronised",
        stand_ins.gpt_decode_unsynchronised,
    ),
    "resnet50-training": Kind(
        "ResNet-50 training", of.ResNet50Training, "training:ResNet50Training", stand_ins.resnet50_training, gib=24.0
    ),
    "bert-training": Kind("BERT training", of.BertTraining, "training:BertTraining", stand_ins.bert_training, gib=24.0),
    "gpt-training": Kind("decoder training", of.GptTraining, "training:GptTraining", stand_ins.gpt_training, gib=24.0),
    "gemm": Kind("matrix products: long kernels on all SMs", of.Gemm, "stress:Gemm", stand_ins.gemm),
    "elementwise": Kind(
        "memory streaming in short blocks", of.Elementwise, "stress:Elementwise", stand_ins.elementwise
    ),
    "long-kernel": Kind("long kernels that occupy all SMs", of.LongKernel, "stress:LongKernel", stand_ins.long_kernel),
    "spin": Kind("kernels that occupy a few SMs", of.Spin, "stress:Spin", stand_ins.spin),
    **PROGRAMS,
    "simulated-inference": Kind("requests on the simulated GPU", of.Simulated, "simulated:Simulated"),
    "simulated-training": Kind("training on the simulated GPU", of.SimulatedTraining, "simulated:SimulatedTraining"),
}


def load(kind: str, options: dict[str, Any], simulated: bool) -> Load:
    """Return kind and options for a worker: the workload itself or, if `simulated`, its stand-in.

    Raises:
        Invalid: The workload is unknown or has an invalid option.
    """
    checked, stand_in = check(kind, options), KINDS[kind].stand_in
    return stand_in(checked) if simulated and stand_in else (kind, options)


def make(kind: str, options: dict[str, Any], place: Place | None = None) -> Workload:
    """Set up a workload and warm it up.

    Raises:
        Invalid: The workload is unknown or has an invalid option; nothing has been imported then.
    """
    checked = check(kind, options)
    module, name = KINDS[kind].factory.split(":")
    factory = getattr(importlib.import_module(f"{HERE}.{module}"), name)

    def build() -> Workload:
        workload = cast("Workload", factory(checked, place or Place()))
        workload.details = KINDS[kind].versions | workload.details
        return workload

    count = getattr(checked, "ranks", 1)
    return ranks.Job(kind, options, count, build) if count > 1 and not ranks.in_job() else build()


def why_skipped(kind: str) -> str | None:
    """Return a sentence that says why a program cannot run here; None if it can, as far as packages decide."""
    missing = KINDS[kind].missing
    if not missing:
        return None
    are = "is" if len(missing) == 1 else "are"
    return f"{kind} is skipped: it needs {' and '.join(missing)}, which {are} not installed"


def check(kind: str, options: dict[str, Any]) -> of.Options:
    """Check options; return them with the workload's defaults.

    Raises:
        Invalid: The kind or an option is unknown, or a value is invalid.
    """
    if kind not in KINDS:
        raise Invalid(f"there is no workload {kind!r}; there are {', '.join(KINDS)}")
    model = KINDS[kind].options
    try:
        return model.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields)
            raise Invalid(f"{kind} has no option {option!r}; it has {known}") from error
        problem = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
        given = f"option {option} is {first['input']!r}; " if option else ""
        raise Invalid(f"{kind}: {given}{problem}") from error


@dataclass(frozen=True)
class OptionRow:
    """One option, as text for people."""

    name: str
    default: Any
    allowed: str
    """ "graph, eager, compile", "integer", ... """
    meaning: str


def options_of(kind: str) -> list[OptionRow]:
    """Describe a workload's options: first its own, then those that all workloads have.

    Raises:
        KeyError: The kind is unknown.
    """
    schema = KINDS[kind].options.model_json_schema()["properties"]
    rows = [
        OptionRow(name, field.get("default"), _allowed(field), field.get("description", ""))
        for name, field in schema.items()
    ]
    return sorted(rows, key=lambda row: row.name in of.Options.model_fields)


def _allowed(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(field["enum"])
    if "const" in field:
        return str(field["const"])
    kinds = [one.get("type", "") for one in field.get("anyOf", [field])]
    return " or ".join("nothing" if kind == "null" else kind for kind in kinds)
