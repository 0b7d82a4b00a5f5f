"""The options of the programs; this module imports none of their packages."""

from typing import Literal

from pydantic import Field

from orion.bench.workloads.options import Options, Training

CompileMode = Literal["default", "reduce-overhead", "max-autotune"]
COMPILE_MODE = "mode of torch.compile; the last two launch CUDA graphs"


class OwnStreams(Options):
    """Options of a program that chooses its streams itself."""

    stream_priority: Literal["normal"] = Field(default="normal", description="the program chooses its streams itself")


class Layers(Options):
    """A stack of square layers."""

    batch: int = Field(default=4096, ge=1, description="rows of the input")
    layers: int = Field(default=8, ge=1, description="square layers")
    width: int = Field(default=4096, ge=16, description="rows and columns of a layer's weights")


class JaxTraining(OwnStreams, Layers):
    """One jitted training step, bf16."""

    donate: bool = Field(default=False, description="the new weights take the memory of the old ones")
    command_buffers: bool = Field(default=True, description="XLA launches the step as CUDA graphs")


class CupyFft(OwnStreams):
    """Complex Fourier transforms and back."""

    batch: int = Field(default=64, ge=1, description="sequences")
    points: int = Field(default=1 << 20, ge=2, description="complex numbers of a sequence")


class CompiledTraining(Training, Layers):
    """A stack of layers trained by SGD, bf16."""

    batch: int = Field(default=4096, ge=1, description="rows of the input")
    mode: CompileMode = Field(default="default", description=COMPILE_MODE)


class TimmInference(Options):
    """Images of 224 x 224, bf16."""

    model: str = Field(default="vit_base_patch16_224", description="a model's name in timm")
    batch: int = Field(default=16, ge=1, description="images per request")
    mode: Literal["eager", CompileMode] = Field(default="eager", description=f"eager, or {COMPILE_MODE}")


class DecodeGraph(Options):
    """One CUDA graph for each step; a product and an activation for each layer."""

    batch: int = Field(default=4096, ge=1, description="rows of the input")
    layers: int = Field(default=130, ge=1, description="layers, with at least two kernels each")
    width: int = Field(default=4096, ge=16, description="rows and columns of a layer's weights")
    branches: int = Field(default=1, ge=1, le=16, description="chains of so many layers, side by side in the graph")
    updated: bool = Field(
        default=False, description="set the parameters of every kernel before each launch, as XLA does"
    )


class Llama(Options):
    """A Llama of Transformers, bf16."""

    layers: int = Field(default=8, ge=1, description="layers of the model")
    width: int = Field(default=2048, ge=64, multiple_of=64, description="width of the model; heads have 64")
    batch: int = Field(default=8, ge=1, description="sequences together")


class PeftFinetuning(OwnStreams, Llama):
    """LoRA of PEFT, activation checkpointing, AdamW."""

    batch: int = Field(default=8, ge=1, description="sequences per step")
    length: int = Field(default=1024, ge=8, description="tokens per sequence")
    checkpointing: bool = Field(default=True, description="compute activations again in the backward pass")


class Generate(Llama):
    """Greedy generation of a fixed number of tokens."""

    prompt: int = Field(default=128, ge=1, description="tokens of each prompt")
    tokens: int = Field(default=16, ge=2, description="tokens generated per request")


class ContinuousBatching(OwnStreams, Generate):
    """Requests that Transformers' own scheduler batches."""

    batch: int = Field(default=16, ge=1, description="prompts submitted together")


class PygTraining(Training):
    """Graph convolutions on a random graph, AdamW."""

    batch: int = Field(default=1, ge=1, le=1, description="graphs per step")
    nodes: int = Field(default=20_000, ge=2, description="nodes of the graph")
    edges: int = Field(default=400_000, ge=1, description="edges of the graph")
    layers: int = Field(default=4, ge=1, description="GCN layers")
    width: int = Field(default=256, ge=1, description="features of a node in each layer")


class LightningTraining(OwnStreams, Layers):
    """A stack of layers trained by Lightning's Trainer, bf16-mixed."""

    batch: int = Field(default=4096, ge=1, description="rows of the input")
    layers: int = Field(default=8, ge=1, description="square layers")
    width: int = Field(default=2048, ge=16, description="rows and columns of a layer's weights")


class TritonKernels(Options):
    """A matrix product and a row-wise softmax, both written in Triton."""

    size: int = Field(default=4096, ge=128, le=32_768, multiple_of=128, description="rows and columns of the matrices")
    repeats: int = Field(default=4, ge=1, description="products, each with a softmax, before each synchronisation")
