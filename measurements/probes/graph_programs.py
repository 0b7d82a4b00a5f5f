"""Counts which driver calls about graphs a training step makes, in JAX and in PyTorch.

    python measurements/probes/graph_programs.py > programs.jsonl     on a machine with an NVIDIA GPU, gcc and CUPTI
    python measurements/probes/graph_programs.py jax-graphs           only this case

A step trains 8 layers of 4096 x 4096 on a batch of 4096, in bfloat16. Each case is a process of its own, because XLA
reads its flags once. `graph_calls.c` does the counting: the driver loads it into the process, and CUPTI reports the
calls. A case prints one line of JSON: calls for each step after the warm-up, calls during the warm-up, and the step's
time. A case whose package is missing says so. If CUPTI cannot be used, the times are printed without counts.
"""

import argparse
import ctypes
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAYERS, WIDTH, BATCH = 8, 4096, 4096
WARM_UP, STEPS = 20, 50
LIMIT_S = 150
COUNTER = "GRAPH_CALLS_LIBRARY"

Step = Callable[[], None]
""" Makes one step, and waits for it. """


def jax_step(*, donate: bool) -> Step:
    """Return a jitted step; with `donate` the new weights take the memory of the old ones."""
    jax, jnp = (importlib.import_module(name) for name in ("jax", "jax.numpy"))

    def loss(weights: list[Any], batch: Any) -> Any:
        for weight in weights:
            batch = jax.nn.gelu(batch @ weight)
        return jnp.mean(batch.astype(jnp.float32) ** 2)

    def train(weights: list[Any], batch: Any) -> list[Any]:
        gradients = jax.grad(loss)(weights, batch)
        return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    state = [jax.random.normal(key, (WIDTH, WIDTH), jnp.bfloat16) * 0.02 for key in keys[1:]]
    batch = jax.random.normal(keys[0], (BATCH, WIDTH), jnp.bfloat16)
    compiled = jax.jit(train, donate_argnums=(0,) if donate else ())

    def step() -> None:
        nonlocal state
        state = compiled(state, batch)
        jax.block_until_ready(state)

    return step


def torch_step(*, mode: str | None) -> Step:
    """Return a step of PyTorch: eager, or compiled in this mode."""
    torch = importlib.import_module("torch")
    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    forward = torch.compile(model, mode=mode) if mode else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(batch).float().square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


CASES: dict[str, tuple[str, dict[str, str], Callable[[], Step]]] = {
    "jax-graphs": ("jax", {}, lambda: jax_step(donate=False)),
    "jax-graphs-donated": ("jax", {}, lambda: jax_step(donate=True)),
    "jax-no-graphs": ("jax", {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}, lambda: jax_step(donate=False)),
    "torch-eager": ("torch", {}, lambda: torch_step(mode=None)),
    "torch-reduce-overhead": ("torch", {}, lambda: torch_step(mode="reduce-overhead")),
}
""" By name: the package, environment variables of the process, and what makes its step. """


class Counter:
    """The calls that the library has counted in this process. Without the library, nothing."""

    def __init__(self, path: str | None) -> None:
        self._library = ctypes.CDLL(path) if path else None

    def failure(self) -> str:
        """Return why nothing is counted; empty if calls are counted."""
        if self._library is None:
            return "the counting library was not built"
        self._library.graph_calls_failure.restype = ctypes.c_char_p
        return str(self._library.graph_calls_failure().decode())

    def take(self) -> dict[str, int]:
        """Return the calls since the last time."""
        if self._library is None:
            return {}
        text = ctypes.create_string_buffer(1 << 16)
        self._library.graph_calls_text(text, ctypes.c_size_t(len(text)))
        self._library.graph_calls_reset()
        rows = (line.split() for line in text.value.decode().splitlines())
        return {name: int(count) for name, count in rows}


def run_case(name: str) -> dict[str, Any]:
    """Make the steps of a case in this process, and return what it prints."""
    counter = Counter(os.environ.get(COUNTER))
    step = CASES[name][2]()
    for _ in range(WARM_UP):
        step()
    warm_up = counter.take()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    took = time.perf_counter() - begin
    calls = {function: count / STEPS for function, count in counter.take().items()}
    answer = {"case": name, "step_ms": round(took / STEPS * 1e3, 3), "calls_per_step": calls, "calls_warm_up": warm_up}
    return answer | ({"not_counted": counter.failure()} if counter.failure() else {})


def build_counter(folder: Path) -> Path | None:
    """Compile the counting library; None if that fails."""
    library = folder / "graph_calls.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", str(HERE / "graph_calls.c"), "-o", str(library), "-ldl"]
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"graph_calls.c was not built: {error}", file=sys.stderr)
        return None
    return library


def cupti() -> dict[str, str]:
    """Return the variable that names the CUPTI of NVIDIA's Python packages, if they are installed."""
    found = importlib.util.find_spec("nvidia")
    for place in found.submodule_search_locations or () if found else ():
        for library in sorted(Path(place).glob("*/lib/libcupti.so.1[23]"), reverse=True):
            return {"GRAPH_CALLS_CUPTI": str(library)}
    return {}


def run_in_process(name: str, library: Path | None) -> dict[str, Any]:
    """Run a case in a process of its own, and return what it printed or why it did not run."""
    package, settings, _ = CASES[name]
    if importlib.util.find_spec(package) is None:
        return {"case": name, "skipped": f"{package} is not installed"}
    counting = {COUNTER: str(library), "CUDA_INJECTION64_PATH": str(library), **cupti()} if library else {}
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **counting, **settings}
    command = [sys.executable, __file__, "--in-this-process", name]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"case": name, "failed": f"no end after {LIMIT_S} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"case": name}
    return answer | ({"failed": f"exit status {done.returncode}"} if done.returncode else {})


def main() -> None:
    """Run the cases of the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--in-this-process", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.in_this_process:
        print(json.dumps(run_case(options.in_this_process)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        library = build_counter(Path(folder))
        for name in options.cases or CASES:
            print(f"{name} ...", file=sys.stderr)
            print(json.dumps(run_in_process(name, library)), flush=True)


if __name__ == "__main__":
    main()
