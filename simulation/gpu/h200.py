"""The constants of an NVIDIA H200 with 700 W, each with its source.

docs/results/context-switch.md measured the switches. measurements/probes/work_alone.py measured power, kernels and
clock, with one process on the GPU (docs/results/raw/work-alone.json.gz). measurements/clock_constants.py computes these
figures from that file.
"""

from orion.simulation.gpu.costs import Costs, Figure, PowerControl, Work

_SWITCH = "docs/results/context-switch.md, the switch: Orion, from be to hp"
_BACK = "docs/results/context-switch.md, the switch: unmanaged, from hp to be"
_LINGER = "docs/results/context-switch.md: Orion adds a linger of 50 us"
_SLICE = "docs/results/context-switch.md: with unmanaged time-slicing hp's kernel waits at most 2.13 ms, with a switch"
_ALONE = "docs/results/raw/work-alone.json.gz"
_CONTROL = f"{_ALONE}: `turns` of matrix products and requests in one process"

TRAINING_REST = (
    (0.0, 0.0),
    (0.1, 0.01),
    (0.25, 0.027),
    (0.5, 0.059),
    (0.75, 0.12),
    (0.9, 0.25),
    (0.95, 0.4),
    (1.0, 1.2),
)
"""Between those of ResNet-50 training and BERT training."""

H200 = Costs(
    gpu="NVIDIA H200",
    to_hp_ms=Figure(0.140, _SWITCH),
    to_be_ms=Figure(0.161, _BACK),
    linger_ms=Figure(0.050, _LINGER),
    slice_ms=Figure(2.0, _SLICE),
    slice_switch_ms=Figure(0.146, "docs/results/context-switch.md: two processes, kernels alternate"),
    power=PowerControl(
        limit_w=Figure(700.0, f"{_ALONE}: matrix products take 687 to 694 W on average"),
        idle_w=Figure(127.0, f"{_ALONE}: power after a second of rest"),
        memory_ms=Figure(6.1, _CONTROL),
        exponent=Figure(2.42, _CONTROL),
        gain_per_ms=Figure(0.037, _CONTROL),
        fastest_rise_per_ms=Figure(0.0016, _CONTROL),
        fastest_drop_per_ms=Figure(0.0018, _CONTROL),
    ),
    work=(
        Work("resnet50-inference", 64, 551.0, 0.97),
        Work("resnet50-inference", 4, 231.0, 0.93),
        Work("mobilenetv2-inference", None, 421.0),
        Work("bert-inference", 16, 616.0, 1.51),
        Work("gpt-prefill", None, 458.0),
        Work("gpt-decode", 1, 211.0, 1.11),
        Work("gpt-decode", 32, 274.0, 1.18),
        Work("gpt-decode-unsynchronised", None, 215.0, 1.11),
        Work(
            "resnet50-training", None, 591.0, None,
            ((0.0, 0.0), (0.1, 0.011), (0.25, 0.030), (0.5, 0.064), (0.75, 0.146), (0.9, 0.351), (0.95, 0.627),
             (0.99, 1.422), (1.0, 1.833)),
        ),
        Work(
            "bert-training", None, 676.0, None,
            ((0.0, 0.0), (0.1, 0.010), (0.25, 0.025), (0.5, 0.054), (0.75, 0.107), (0.9, 0.157), (0.95, 0.189),
             (0.99, 0.470), (1.0, 0.656)),
        ),
        Work(
            "gpt-training", None, 642.0, None,
            ((0.0, 0.0), (0.1, 0.010), (0.25, 0.027), (0.5, 0.059), (0.75, 1.020), (0.9, 4.349), (0.95, 5.610),
             (0.99, 8.092), (1.0, 8.853)),
        ),
        Work("elementwise", None, 395.0),
        Work("long-kernel", None, 291.0),
    ),
    work_source=_ALONE,
    power_w_otherwise=421.0,
    sensitivity_otherwise=1.1,
    rest_otherwise_ms=TRAINING_REST,
)  # fmt: skip
