"""Sets the parameters of a CUDA graph's kernels again before each launch, as XLA does with its command buffers."""

import ctypes
from typing import Any

from orion.bench.workloads.driver import call

KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL
PARAMETER_BYTES = 256  # more than sizeof(CUDA_KERNEL_NODE_PARAMS), which is 72


class GraphUpdates:
    """The kernel nodes of a graph, with the parameters that they were captured with."""

    def __init__(self, graph: ctypes.c_void_p, executable: ctypes.c_void_p) -> None:
        """Read the parameters.

        Args:
            graph: The captured graph; it has to outlive this object, because it owns the arguments of its kernels.
            executable: An instantiation of it.
        """
        self._executable = executable
        count = ctypes.c_size_t()
        call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
        self.nodes = count.value
        self._kernels = [self._with_parameters(node) for node in map(ctypes.c_void_p, nodes) if _kind(node) == KERNEL]

    @property
    def kernels(self) -> int:
        """Return the number of kernel nodes."""
        return len(self._kernels)

    def apply(self) -> None:
        """Set the parameters of every kernel node of the executable."""
        for node, parameters in self._kernels:
            call("cuGraphExecKernelNodeSetParams_v2", self._executable, node, parameters)

    def _with_parameters(self, node: ctypes.c_void_p) -> tuple[ctypes.c_void_p, Any]:
        parameters = ctypes.create_string_buffer(PARAMETER_BYTES)
        call("cuGraphKernelNodeGetParams_v2", node, parameters)
        return node, parameters


def _kind(node: ctypes.c_void_p) -> int:
    kind = ctypes.c_int()
    call("cuGraphNodeGetType", node, ctypes.byref(kind))
    return kind.value
