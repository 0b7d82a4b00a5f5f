"""What may be said of each workload, checked before anything is set up; known without torch.

One model a family, fields in the order in which people think of them. Values are taken strictly: "64" is no number.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Options(BaseModel):
    """What every workload knows."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    stream_priority: Literal["normal", "high"] = Field(
        default="normal", description="high: everything runs on a stream of the highest priority"
    )


class Inference(Options):
    """A request is launched and waited for."""

    batch: int = Field(default=1, ge=1, description="inputs a request")
    mode: Literal["graph", "eager", "compile"] = Field(
        default="graph", description="one CUDA graph a request; kernel by kernel; what torch.compile makes of it"
    )


class Convolutional(Inference):
    """Images of 224 x 224."""

    batch: int = Field(default=64, ge=1, description="images a request")


class ResNet50Inference(Convolutional):
    """Of ResNet-50, in the number formats that people use."""

    precision: Literal["bf16", "autocast", "tf32"] = Field(
        default="bf16", description="weights in bf16; in fp32 under autocast; in fp32 with TF32 products"
    )


class BertInference(Inference):
    """Of BERT-base."""

    batch: int = Field(default=16, ge=1, description="sequences a request")
    length: int = Field(default=128, ge=1, le=512, description="words a sequence")


class GptPrefill(Inference):
    """Of prompts."""

    length: int = Field(default=512, ge=1, le=4096, description="tokens of each prompt")


class GptDecode(Inference):
    """Of the tokens after a prompt; in mode graph one replay a token."""

    batch: int = Field(default=1, ge=1, description="sequences generated together")
    tokens: int = Field(default=32, ge=1, le=4096, description="generated a request")
    prompt: int = Field(default=128, ge=0, le=4096, description="tokens that are in the cache already")


class Training(Options):
    """Iterations queued ahead of the GPU, at most two unfinished ones."""

    batch: int = Field(default=1, ge=1, description="inputs a step")
    stall: float = Field(
        default=0.0, ge=0, le=0.95, description="share of an iteration spent waiting for input, the GPU idle"
    )
    stall_ms: float | None = Field(
        default=None, ge=0, description="the same in milliseconds: nothing is calibrated, so processes stall alike"
    )
    sync_each_step: bool = Field(default=False, description="wait for every step, as who reads each loss does")

    @model_validator(mode="after")
    def _one_stall(self) -> "Training":
        if self.stall and self.stall_ms is not None:
            raise ValueError("stall and stall_ms exclude each other")
        return self


class ResNet50Training(Training):
    """bf16 autocast, SGD with momentum."""

    batch: int = Field(default=256, ge=1, description="images a step")
    traced: bool = Field(default=False, description="mark every layer while the trace is on; costs time while off too")


class BertTraining(Training):
    """bf16 autocast, AdamW; 12 layers of width 1024."""

    batch: int = Field(default=32, ge=1, description="sequences a step")
    length: int = Field(default=512, ge=8, le=4096, description="words a sequence")


class GptTraining(Training):
    """bf16 autocast, AdamW; the decoder of gpt-decode."""

    batch: int = Field(default=8, ge=1, description="sequences a step")
    length: int = Field(default=1024, ge=8, le=4096, description="tokens a sequence")


class Gemm(Options):
    """Square bf16 matrix products."""

    size: int = Field(default=8192, ge=16, le=65536, description="rows and columns; 2048, 4096, 8192 are the usual")
    products: int = Field(default=8, ge=1, description="launched before each synchronisation")


class Elementwise(Options):
    """A tensor is read and written."""

    mib: int = Field(default=1024, ge=1, le=65536, description="size of the tensor, MiB")
    passes: int = Field(default=8, ge=1, description="over it, before each synchronisation")


class LongKernel(Options):
    """A kernel on all SMs."""

    ms: float = Field(default=10.0, gt=0, le=10000, description="how long a kernel runs; 2, 10, 50 are the usual")
    kernels: int = Field(default=2, ge=1, description="launched before each synchronisation")
    counts: Literal["elapsed", "work"] = Field(
        default="elapsed",
        description="ends at a time by the GPU's clock; or after a calibrated amount of work, longer if interrupted",
    )


class Spin(LongKernel):
    """A kernel on some SMs."""

    ms: float = Field(default=5.0, gt=0, le=10000, description="how long a kernel runs")
    blocks: int = Field(default=1, ge=1, le=65536, description="each fills half an SM; so many SMs are spun on")


class Simulated(Options):
    """Kernels that are a duration and a number of SMs."""

    kernel_us: float = Field(default=500.0, gt=0, description="duration of a kernel, microseconds")
    kernels: int = Field(default=8, ge=1, description="kernels of a step")
    sms: int = Field(default=132, ge=1, description="SMs that a kernel needs")
    parts: int = Field(default=1, ge=1, description="a step's equal parts, each launched and waited for")
    graph: bool = Field(default=False, description="a part is one graph instead of its kernels one by one")
    queued: bool = Field(default=False, description="parts are not waited for; at most two unfinished steps")
    stall_ms: float = Field(default=0.0, ge=0, description="sleep after each step has completed, milliseconds")
    amount: float = Field(default=1.0, gt=0, description="what a step processes")
    timeline: str | None = Field(default=None, description="file in which the driver notes who had the GPU when")

    @model_validator(mode="after")
    def _whole_parts(self) -> "Simulated":
        if self.kernels % self.parts:
            raise ValueError(f"{self.kernels} kernels cannot be divided into {self.parts} equal parts")
        return self


class SimulatedTraining(Simulated):
    """The same, with a training step's usual numbers."""

    kernel_us: float = Field(default=200.0, gt=0, description="duration of a kernel, microseconds")
    kernels: int = Field(default=20, ge=1, description="kernels of a step")
