"""The options of each workload, which are checked before anything is set up; this module does not import torch.

Checks are strict: the string "64" is not a number.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Options(BaseModel):
    """Options of every workload."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    stream_priority: Literal["normal", "high"] = Field(
        default="normal", description="high: all work runs on a stream of the highest priority"
    )


class Inference(Options):
    """Requests; for each, the CPU launches the network and waits for the result."""

    batch: int = Field(default=1, ge=1, description="inputs per request")
    mode: Literal["graph", "eager", "compile"] = Field(
        default="graph", description="one CUDA graph per request; kernel by kernel; compiled by torch.compile"
    )


class Convolutional(Inference):
    """Images of 224 x 224."""

    batch: int = Field(default=64, ge=1, description="images per request")


class ResNet50Inference(Convolutional):
    """Inference with ResNet-50, in common number formats."""

    precision: Literal["bf16", "autocast", "tf32"] = Field(
        default="bf16", description="weights in bf16; in fp32 under autocast; in fp32 with TF32 products"
    )


class BertInference(Inference):
    """Inference with BERT-base."""

    batch: int = Field(default=16, ge=1, description="sequences per request")
    length: int = Field(default=128, ge=1, le=512, description="words per sequence")


class GptPrefill(Inference):
    """The prefill of prompts."""

    length: int = Field(default=512, ge=1, le=4096, description="tokens of each prompt")


class GptDecode(Inference):
    """Generation of tokens after a prompt; in mode graph, one replay per token."""

    batch: int = Field(default=1, ge=1, description="sequences generated together")
    tokens: int = Field(default=32, ge=1, le=4096, description="tokens generated per request")
    prompt: int = Field(default=128, ge=0, le=4096, description="tokens in the cache before the first generated one")


class Training(Options):
    """A training loop that runs ahead of the GPU, by at most two incomplete iterations."""

    batch: int = Field(default=1, ge=1, description="inputs per step")
    stall: float = Field(
        default=0.0, ge=0, le=0.95, description="share of an iteration in which the loop waits for input, GPU idle"
    )
    stall_ms: float | None = Field(
        default=None, ge=0, description="length of the stall in milliseconds; not calibrated, so equal in all processes"
    )
    sync_each_step: bool = Field(default=False, description="wait for each step, like a loop that reads each loss")

    @model_validator(mode="after")
    def _one_stall(self) -> "Training":
        if self.stall and self.stall_ms is not None:
            raise ValueError("give either stall or stall_ms, not both")
        return self


class DataParallelTraining(Training):
    """A training loop of one or several processes, which sum their gradients."""

    ranks: int = Field(default=1, ge=1, le=16, description="processes of the job, each on a GPU of its own")


class ResNet50Training(DataParallelTraining):
    """bf16 autocast, SGD with momentum."""

    batch: int = Field(default=256, ge=1, description="images per step")
    traced: bool = Field(
        default=False, description="mark every layer in the trace; costs some time even while the trace is off"
    )


class BertTraining(DataParallelTraining):
    """bf16 autocast, AdamW; 12 layers of width 1024."""

    batch: int = Field(default=32, ge=1, description="sequences per step")
    length: int = Field(default=512, ge=8, le=4096, description="words per sequence")


class GptTraining(DataParallelTraining):
    """bf16 autocast, AdamW; the decoder of gpt-decode."""

    batch: int = Field(default=8, ge=1, description="sequences per step")
    length: int = Field(default=1024, ge=8, le=4096, description="tokens per sequence")


class Gemm(Options):
    """Square bf16 matrix products."""

    size: int = Field(default=8192, ge=16, le=65536, description="rows and columns; usual: 2048, 4096, 8192")
    products: int = Field(default=8, ge=1, description="products launched before each synchronisation")


class Elementwise(Options):
    """Passes that read and write a tensor."""

    mib: int = Field(default=1024, ge=1, le=65536, description="size of the tensor, MiB")
    passes: int = Field(default=8, ge=1, description="passes over the tensor before each synchronisation")


class LongKernel(Options):
    """Kernels on all SMs."""

    ms: float = Field(default=10.0, gt=0, le=10000, description="duration of a kernel, milliseconds; usual: 2, 10, 50")
    kernels: int = Field(default=2, ge=1, description="kernels launched before each synchronisation")
    counts: Literal["elapsed", "work"] = Field(
        default="elapsed",
        description="elapsed: ends at a time of the GPU's clock; work: ends after some work, later if interrupted",
    )


class Spin(LongKernel):
    """Kernels on some SMs."""

    ms: float = Field(default=5.0, gt=0, le=10000, description="duration of a kernel, milliseconds")
    blocks: int = Field(default=1, ge=1, le=65536, description="blocks of a kernel; each block fills half an SM")


class Simulated(Options):
    """Simulated kernels, each defined by a duration and a number of SMs."""

    kernel_us: float = Field(default=500.0, gt=0, description="duration of a kernel, microseconds")
    kernels: int = Field(default=8, ge=1, description="kernels of a step")
    sms: int = Field(default=132, ge=1, description="SMs that a kernel needs")
    parts: int = Field(default=1, ge=1, description="equal parts of a step, each launched and waited for")
    graph: bool = Field(default=False, description="launch each part as one graph, not kernel by kernel")
    updated: bool = Field(
        default=False, description="with graph: set the parameters of every kernel again before each launch"
    )
    queued: bool = Field(default=False, description="do not wait for parts; at most two incomplete steps")
    stall_ms: float = Field(default=0.0, ge=0, description="sleep after each completed step, milliseconds")
    amount: float = Field(default=1.0, gt=0, description="units that a step processes")
    ranks: int = Field(default=1, ge=1, le=16, description="processes of the job, each on a GPU of its own")
    timeline: str | None = Field(
        default=None, description="file in which the driver records when which process used the GPU"
    )

    @model_validator(mode="after")
    def _whole_parts(self) -> "Simulated":
        if self.kernels % self.parts:
            raise ValueError(f"{self.kernels} kernels cannot be divided into {self.parts} equal parts; give a multiple")
        return self


class SimulatedTraining(Simulated):
    """Simulated kernels, with the defaults of a training step."""

    kernel_us: float = Field(default=200.0, gt=0, description="duration of a kernel, microseconds")
    kernels: int = Field(default=20, ge=1, description="kernels of a step")
