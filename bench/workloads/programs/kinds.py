"""The programs by name."""

from orion.bench.workloads.kind import Kind
from orion.bench.workloads.programs import options as of
from orion.bench.workloads.programs import stand_ins

PROGRAMS: dict[str, Kind] = {
    "jax-training": Kind(
        "JAX: one jitted training step, which XLA launches as CUDA graphs",
        of.JaxTraining,
        "programs.jax_training:JaxTraining",
        stand_ins.jax_training,
        packages=("jax",),
    ),
    "compiled-training": Kind(
        "training under torch.compile, in its three modes",
        of.CompiledTraining,
        "programs.compiled:CompiledTraining",
        stand_ins.compiled_training,
        packages=("torch",),
    ),
    "decode-graph": Kind(
        "replay of a CUDA graph of 260 kernels, as an inference engine replays one for each token",
        of.DecodeGraph,
        "programs.graph_replay:DecodeGraph",
        stand_ins.decode_graph,
        gib=3.0,
        packages=("torch",),
    ),
    "pyg-training": Kind(
        "PyTorch Geometric: graph convolutions",
        of.PygTraining,
        "programs.frameworks:PygTraining",
        stand_ins.pyg_training,
        gib=8.0,
        packages=("torch_geometric", "torch"),
    ),
    "cupy-fft": Kind(
        "CuPy: Fourier transforms and back",
        of.CupyFft,
        "programs.cupy_fft:CupyFft",
        stand_ins.cupy_fft,
        packages=("cupy",),
    ),
    "peft-finetuning": Kind(
        "Transformers: a Llama fine-tuned with PEFT by the Trainer",
        of.PeftFinetuning,
        "programs.huggingface:PeftFinetuning",
        stand_ins.peft_finetuning,
        gib=10.0,
        packages=("peft", "transformers", "accelerate", "torch"),
    ),
    "transformers-generate": Kind(
        "Transformers: a Llama generates by `generate`, eager",
        of.Generate,
        "programs.huggingface:Generate",
        stand_ins.generate,
        packages=("transformers", "torch"),
    ),
    "transformers-continuous-batching": Kind(
        "Transformers: a Llama generates by `generate_batch`, continuous batching",
        of.ContinuousBatching,
        "programs.huggingface:ContinuousBatching",
        stand_ins.generate,
        packages=("transformers", "torch"),
    ),
    "timm-inference": Kind(
        "timm: image classification, eager or in the three modes of torch.compile",
        of.TimmInference,
        "programs.compiled:TimmInference",
        stand_ins.timm_inference,
        packages=("timm", "torch"),
    ),
    "lightning-training": Kind(
        "Lightning: training by its Trainer",
        of.LightningTraining,
        "programs.frameworks:LightningTraining",
        stand_ins.lightning_training,
        packages=("pytorch_lightning", "torch"),
    ),
    "triton-kernels": Kind(
        "Triton: a matrix product and a softmax",
        of.TritonKernels,
        "programs.triton_kernels:TritonKernels",
        stand_ins.triton_kernels,
        packages=("triton", "torch"),
    ),
}
