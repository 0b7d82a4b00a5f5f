"""glet's limit on the requests' bytes that a GPU receives. Only glet's own planners check it."""

from .float32 import single
from .state import Gpu, Placed

LIMIT_GBIT_S = 3.0
_IMAGE_224, _IMAGE_300, _IMAGE_28 = 3 * 224 * 224 * 4, 3 * 300 * 300 * 4, 28 * 28 * 4
_BYTES = {**dict.fromkeys(range(6), _IMAGE_28), 8: _IMAGE_300, 13: 112}


def gbit_s(gpu: Gpu) -> float:
    """Return the input that a GPU's services receive, in 2^30 bits/s."""
    return sum(each.throughput * _bytes(each.model) for part in gpu.parts for each in part.services) * 8 / 1024**3


def cut(placed: Placed, gpu: Gpu) -> bool:
    """Reduce a batch, and the throughput with it, until its input fits what the GPU has left; False if none fits."""
    left = max(LIMIT_GBIT_S - gbit_s(gpu), 0.0)
    if left == 0.0:
        return False
    for batch in range(placed.batch, 0, -1):
        if (batch / placed.batch * placed.throughput) * _bytes(placed.model) * 8 / 1024 / 1024 / 1024 <= left:
            placed.throughput = single(single(batch / placed.batch) * placed.throughput)
            placed.batch = batch
            return True
    return False


def _bytes(model: int) -> int:
    """Return the bytes of one request."""
    return _BYTES.get(model, _IMAGE_224)
