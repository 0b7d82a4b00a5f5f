"""The decoder's step-by-step generation gives the same tokens as its whole forward pass."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch
from orion.bench.workloads.networks.transformer import Decoder, OneToken
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False
with torch.device("cuda"), torch.inference_mode():
    decoder = Decoder(3, 64, 4, length=32).eval()
    prompt = torch.randint(0, Decoder.VOCABULARY, (2, 8))
    one = OneToken(decoder, 2, 8, 32)
    one.token.copy_(decoder.prefill(prompt, one.caches).argmax(-1, keepdim=True))
    for again in range(2):
        first = one.token.clone() if again == 0 else first
        one.token.copy_(first)
        one.rewind()
        made = [first] + [one().clone() for _ in range(16)]
        text = torch.cat([prompt, *made], dim=1)
        expected = decoder(text[:, :-1]).argmax(-1)[:, 7:]
        assert torch.equal(expected, text[:, 8:]), (expected, text[:, 8:])
print("equal")
"""


def test_generation_by_steps_equals_the_whole_forward_pass() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180)
    assert done.stdout == "equal\n", done.stderr[-2000:]
