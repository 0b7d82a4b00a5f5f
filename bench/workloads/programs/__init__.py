"""Programs that we did not write, as workloads: training and inference by public packages.

They show that Orion protects hp beside any program, not only beside loops that were written for its benchmarks. Each
runs as its package's documentation says, with random weights and data; nothing is downloaded. A program whose package
is missing is skipped (see `packages`).

    options                 the options of each program
    program                 the base class of the programs that do not use torch
    driven                  lets `step` advance a loop that a library controls
    jax_training, cupy_fft  JAX, whose steps are CUDA graphs; CuPy
    compiled                torch.compile: training, and timm's models
    graph_replay            a long CUDA graph, as inference engines replay it for each token
    huggingface             Transformers: fine-tuning with PEFT, `generate`, continuous batching
    frameworks              PyTorch Geometric, Lightning
    triton_kernels          kernels in Triton

torch's own programs inherit from `on_gpu.OnGPU` like all torch workloads.
"""
