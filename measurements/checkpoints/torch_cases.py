"""What the probe tries with PyTorch: the same deterministic training with and without changes, for an allocator."""

import hashlib
import importlib
from typing import Any

from measurements.checkpoints.driver import Gpu, say, there_and_back

STEPS, CHANGES_AFTER = 60, (15, 30, 45)
ALLOCATORS = {
    "torch-native": "",
    "torch-expandable": "expandable_segments:True",
    "torch-async": "backend:cudaMallocAsync",
}
""" Value of PYTORCH_CUDA_ALLOC_CONF by case. """


def training(torch: Any, gpu: Gpu, stay_s: float, changes: tuple[int, ...]) -> str:
    """Train; return a digest of all losses and of the outputs of a replayed graph."""
    torch.manual_seed(7)
    layers = [torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)]
    model = torch.nn.Sequential(*layers).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data, digest = torch.randn(256, 1024, device="cuda"), hashlib.sha256()
    held = data.clone()
    with torch.no_grad():
        model(held)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        answer = model(held)
    for step in range(STEPS):
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(data), data.roll(1, 0))
        loss.backward()
        optimiser.step()
        if step in changes:
            torch.cuda.synchronize()
            say(step=step, back=there_and_back(gpu, stay_s))
        captured.replay()
        digest.update(loss.detach().cpu().numpy().tobytes() + answer.cpu().numpy().tobytes())
    return digest.hexdigest()


def compare(gpu: Gpu, stay_s: float) -> None:
    """Train twice, the second time with three changes."""
    torch = importlib.import_module("torch")
    torch.use_deterministic_algorithms(True)
    first = training(torch, gpu, stay_s, ())
    say(same=first == training(torch, gpu, stay_s, CHANGES_AFTER), allocated=torch.cuda.memory_reserved())
