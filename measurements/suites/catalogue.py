"""The suites of others that this package can run: which of their files, and what is left out and why."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Suite:
    """A test suite of another project.

    Attributes:
        title: Name for tables.
        home: What `--sources` must be.
        files: Patterns of the files that are run, relative to `--sources`, in this order.
        packages: Distributions whose versions the raw data has.
        left_out: Patterns of node ids that are not run, each with the reason.
        on_path: Whether the tests import their package from `--sources`.
        variables: Environment variables of the test processes.
    """

    title: str
    home: str
    files: tuple[str, ...]
    packages: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    on_path: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    def found(self, sources: Path) -> list[str]:
        """Return the files that exist below `sources`, relative to it; larger ones first within a pattern."""
        files: dict[str, None] = {}
        for pattern in self.files:
            matching = sorted(sources.glob(pattern), key=lambda path: (-path.stat().st_size, path))
            files.update(dict.fromkeys(str(path.relative_to(sources)) for path in matching))
        return list(files)


SUITES = {
    "cupy": Suite(
        title="CuPy: tests of cuda and core",
        home="the folder tests/ of CuPy's sources",
        files=("cupy_tests/cuda_tests/**/test_*.py", "cupy_tests/core_tests/**/test_*.py"),
        packages=("cupy-cuda13x", "cupy-cuda12x", "cupy", "numpy", "scipy"),
        left_out={"*test_nccl.py*": "needs several GPUs", "*multi_gpu*": "needs several GPUs"},
    ),
    "pytorch": Suite(
        title="PyTorch: tests of torch.cuda",
        home="the folder test/ of PyTorch's sources",
        files=(
            "test_cuda.py",
            "test_cuda_sanitizer.py",
            "test_cuda_trace.py",
            "test_cuda_primary_ctx.py",
            "test_cuda_nvml_based_avail.py",
        ),
        packages=("torch", "triton", "numpy"),
        left_out={"*TestCudaOptims*": "hundreds of tests of optimizers, which launch the same kinds of work"},
        variables={"PYTORCH_TESTING_DEVICE_ONLY_FOR": "cuda"},
    ),
    "cuda-python": Suite(
        title="cuda-python: tests of cuda.bindings and cuda.core",
        home="the root of cuda-python's sources",
        files=("cuda_bindings/tests/test_*.py", "cuda_core/tests/test_*.py", "cuda_core/tests/memory_ipc/test_*.py"),
        packages=("cuda-bindings", "cuda-core", "numpy"),
        left_out={
            "*/test_cufile.py*": "needs GPUDirect Storage",
            "*/test_graphics_apis.py*": "needs a display",
        },
    ),
    "cuda-samples": Suite(
        title="NVIDIA's CUDA samples",
        home="a folder that measurements.suites.samples made of cuda-samples' sources",
        files=("test_*.py",),
        packages=(),
    ),
    "numba-cuda": Suite(
        title="numba-cuda: the tests in the package",
        home="a folder that measurements.suites.installed made of numba.cuda.tests, with testing/conftest.py",
        files=("test_cudapy_*.py", "test_cudadrv_*.py", "test_*.py"),
        packages=("numba-cuda", "numba", "cuda-bindings", "numpy"),
    ),
    "jax": Suite(
        title="JAX: tests of launches, memory, callbacks, profiling and libraries",
        home="the folder tests/ of JAX's sources",
        files=(
            "pallas/gpu_ops_test.py",
            "pallas/triton_pallas_test.py",
            "mosaic/gpu_test.py",
            "*callback_test.py",
            "*interoperability_test.py",
            "pgle_test.py",
            "profiler_test.py",
            "clear_backends_test.py",
            "gpu_memory_flags_test.py",
            "memories_test.py",
            "layout_test.py",
            "debugging_primitives_test.py",
            "jax_jit_test.py",
            "lax_control_flow_test.py",
            "fft_test.py",
            "svd_test.py",
            "nn_test.py",
            "random_lax_test.py",
            "linalg_test.py",
        ),
        packages=("jax", "jaxlib", "jax-cuda13-plugin", "numpy"),
        variables={"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    ),
    "cuda-python-12": Suite(
        title="cuda-python 12: the tests in its wheel",
        home="a folder into which pip installed cuda-python 12.6 with --target",
        files=("cuda/tests/test_*.py",),
        packages=("cuda-python", "numpy"),
        on_path=True,
    ),
}
