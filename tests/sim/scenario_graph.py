"""Graphs that wait for a word in memory, and graphs of which only one executable may exist."""

import ctypes
from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, fails, main, ok

WAIT = cuda.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WAIT_VALUE_32
AT_LEAST = cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
AUTO_FREE = cuda.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
DEVICE_LAUNCH = cuda.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
IF = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF


class Word:
    """A 32-bit word in pinned memory, for which the device can wait."""

    def __init__(self) -> None:
        self.address = int(ok(cuda.cuMemHostAlloc(64, 0)))
        self.word = ctypes.c_uint32.from_address(self.address)
        self.word.value = 0

    def at_least(self, value: int) -> Any:
        """A batch of one operation, which waits until the word is at least `value`."""
        operation = cuda.CUstreamBatchMemOpParams()
        operation.operation = WAIT
        operation.waitValue.operation = WAIT
        operation.waitValue.address = self.address
        operation.waitValue.value = value
        operation.waitValue.flags = int(AT_LEAST)
        batch = cuda.CUDA_BATCH_MEM_OP_NODE_PARAMS()
        batch.count, batch.paramArray, batch.flags = 1, [operation], 0
        return batch


def call(gpu: Device, microseconds: int, sms: int = 132) -> Any:
    """A kernel for a node."""
    kernel = cuda.CUDA_KERNEL_NODE_PARAMS()
    kernel.func, kernel.kernelParams = gpu.timed, ((microseconds, sms), (ctypes.c_uint64, ctypes.c_uint32))
    for side in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
        setattr(kernel, side, 1)
    return kernel


def add_kernel(graph: Any, gpu: Device, after: list[Any], microseconds: int = 100) -> Any:
    return ok(cuda.cuGraphAddKernelNode(graph, after, len(after), call(gpu, microseconds)))


def add_wait(graph: Any, word: Word, after: list[Any], value: int = 1) -> Any:
    return ok(cuda.cuGraphAddBatchMemOpNode(graph, after, len(after), word.at_least(value)))


def cut_graph(gpu: Device, word: Word) -> tuple[Any, list[Any]]:
    """A kernel, a wait for the word, and a kernel."""
    graph = ok(cuda.cuGraphCreate(0))
    first = add_kernel(graph, gpu, [])
    wait = add_wait(graph, word, [first])
    return graph, [first, wait, add_kernel(graph, gpu, [wait])]


def blocked(stream: Any) -> bool:
    return bool(cuda.cuStreamQuery(stream)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY)


def a_graph_that_waits_uses_no_sm() -> None:
    gpu, word = Device(), Word()
    beside, stream = gpu.stream(), gpu.stream()
    executable = ok(cuda.cuGraphInstantiate(cut_graph(gpu, word)[0], 0))
    ok(cuda.cuGraphLaunch(executable, stream))
    reached = gpu.mark(stream)
    gpu.launch(beside, 50000)  # the graph's first kernel may still run beside this one
    start = gpu.mark(beside)
    for _ in range(3):
        gpu.launch(beside, 5000)
    assert 15000 <= gpu.between(start, gpu.mark(beside)) < 15100
    assert blocked(stream)
    fails(cuda.cuEventQuery(reached), "NOT_READY")
    word.word.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuGraphLaunch(executable, stream))  # open: the same executable runs through
    ok(cuda.cuStreamSynchronize(stream))


def branches_run_together_and_a_cut_stops_its_branch_only() -> None:
    gpu, word = Device(), Word()
    stream, beside = gpu.stream(), gpu.stream()
    graph = ok(cuda.cuGraphCreate(0))
    first = ok(cuda.cuGraphAddKernelNode(graph, None, 0, call(gpu, 1000, 132)))
    left_one, right_one = (ok(cuda.cuGraphAddKernelNode(graph, [first], 1, call(gpu, us, 33))) for us in (5000, 7000))
    left_two = ok(cuda.cuGraphAddKernelNode(graph, [left_one], 1, call(gpu, 1000, 33)))
    ok(cuda.cuGraphAddKernelNode(graph, [left_two, right_one], 2, call(gpu, 2000, 132)))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    gpu.launch(stream, 50000)  # all of the graph is queued before this kernel ends
    start = gpu.mark(stream)
    ok(cuda.cuGraphLaunch(executable, stream))
    assert 10000 <= gpu.between(start, gpu.mark(stream)) < 10100
    # The wait cuts the left branch. The right branch runs on, and records an event.
    clone = ok(cuda.cuGraphClone(graph))
    one, two, other = (ok(cuda.cuGraphNodeFindInClone(node, clone)) for node in (left_one, left_two, right_one))
    ok(cuda.cuGraphRemoveDependencies(clone, [one], [two], None, 1))
    ok(cuda.cuGraphAddDependencies(clone, [add_wait(clone, word, [one])], [two], None, 1))
    done = ok(cuda.cuEventCreate(0))
    ok(cuda.cuGraphAddEventRecordNode(clone, [other], 1, done))
    cut = ok(cuda.cuGraphInstantiate(clone, 0))
    ok(cuda.cuGraphLaunch(cut, stream))
    ok(cuda.cuEventSynchronize(done))
    gpu.launch(beside, 1000)
    ok(cuda.cuStreamSynchronize(beside))
    assert blocked(stream)
    word.word.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    for _ in range(20):  # the streams of branches are freed when their work is done
        ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamDestroy(stream))
    ok(cuda.cuCtxSynchronize())


def kernels_that_wait_for_each_other_log_in_their_order() -> None:
    gpu = Device()
    stream, log = gpu.stream(), (ctypes.c_uint64 * 20_000)()
    graph = ok(cuda.cuGraphCreate(0))
    kinds = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)

    def add(after: list[Any], number: int) -> Any:
        kernel = call(gpu, 1)
        kernel.func, kernel.kernelParams = gpu.logged, ((50, 33, ctypes.addressof(log), number), kinds)
        return ok(cuda.cuGraphAddKernelNode(graph, after, len(after), kernel))

    first = add([], 0)
    branches = [[first] for _ in range(4)]
    for number in range(1, 13):
        branches[number % 4] = [add(branches[number % 4], number)]
    add([node for branch in branches for node in branch], 13)
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    for _ in range(200):
        for _ in range(5):
            ok(cuda.cuGraphLaunch(executable, stream))
        ok(cuda.cuStreamSynchronize(stream))
    assert log[0] == 14_000
    for begin in range(1, 14_000, 14):
        assert sorted(log[begin : begin + 14]) == list(range(14))
        assert (log[begin], log[begin + 13]) == (0, 13)


def all_roots_of_a_graph_wait_for_what_its_stream_waits_for() -> None:
    gpu = Device()
    blocking = gpu.stream(flags=0)
    graph = ok(cuda.cuGraphCreate(0))
    done = ok(cuda.cuEventCreate(0))
    for _ in range(2):
        kernel = ok(cuda.cuGraphAddKernelNode(graph, None, 0, call(gpu, 1000, 10)))
    ok(cuda.cuGraphAddEventRecordNode(graph, [kernel], 1, done))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    start = gpu.mark(blocking)
    gpu.launch(blocking, 20000, 10)
    ok(cuda.cuGraphLaunch(executable, 0))  # the legacy stream waits for the blocking stream
    assert gpu.between(start, done) >= 21000


def an_executable_waits_for_the_value_that_it_was_given() -> None:
    gpu, word = Device(), Word()
    stream, beside = gpu.stream(), gpu.stream()
    graph, (_, wait, _) = cut_graph(gpu, word)
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    word.word.value = 1
    ok(cuda.cuGraphExecBatchMemOpNodeSetParams(executable, wait, word.at_least(7)))
    assert ok(cuda.cuGraphBatchMemOpNodeGetParams(wait)).count == 1
    ok(cuda.cuGraphLaunch(executable, stream))
    gpu.launch(beside, 1000)
    ok(cuda.cuStreamSynchronize(beside))
    assert blocked(stream)
    word.word.value = 7
    ok(cuda.cuStreamSynchronize(stream))
    two = word.at_least(7)
    two.paramArray, two.count = [*two.paramArray, *two.paramArray], 2
    fails(cuda.cuGraphExecBatchMemOpNodeSetParams(executable, wait, two), "INVALID_VALUE")
    ok(cuda.cuGraphBatchMemOpNodeSetParams(wait, two))
    fails(cuda.cuGraphExecUpdate(executable, graph), "GRAPH_EXEC_UPDATE_FAILURE")
    none = cuda.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    fails(cuda.cuGraphAddBatchMemOpNode(graph, None, 0, none), "INVALID_VALUE")


def a_clone_can_be_cut_and_updated_by_its_own_nodes() -> None:
    gpu, word = Device(), Word()
    stream = gpu.stream()
    graph = ok(cuda.cuGraphCreate(0))
    first = add_kernel(graph, gpu, [])
    second = add_kernel(graph, gpu, [first])
    clone = ok(cuda.cuGraphClone(graph))
    one, two = (ok(cuda.cuGraphNodeFindInClone(node, clone)) for node in (first, second))
    ok(cuda.cuGraphRemoveDependencies(clone, [one], [two], None, 1))
    wait = add_wait(clone, word, [one])
    ok(cuda.cuGraphAddDependencies(clone, [wait], [two], None, 1))
    late = add_kernel(graph, gpu, [second])
    fails(cuda.cuGraphNodeFindInClone(late, clone), "INVALID_VALUE")
    fails(cuda.cuGraphNodeFindInClone(wait, clone), "INVALID_VALUE")
    fails(cuda.cuGraphNodeFindInClone(first, graph), "INVALID_VALUE")
    ok(cuda.cuGraphDestroyNode(late))
    copy = ok(cuda.cuGraphInstantiate(clone, 0))
    fails(cuda.cuGraphExecUpdate(copy, graph), "GRAPH_EXEC_UPDATE_FAILURE")  # the copy has one node more
    fails(cuda.cuGraphExecKernelNodeSetParams(copy, second, call(gpu, 400)), "INVALID_VALUE")
    ok(cuda.cuGraphExecKernelNodeSetParams(copy, two, call(gpu, 400)))
    word.word.value = 1
    start = gpu.mark(stream)
    ok(cuda.cuGraphLaunch(copy, stream))
    assert gpu.between(start, gpu.mark(stream)) >= 500
    outer = ok(cuda.cuGraphCreate(0))
    child = ok(cuda.cuGraphAddChildGraphNode(outer, None, 0, graph))
    inside = ok(cuda.cuGraphGetNodes(ok(cuda.cuGraphChildGraphNodeGetGraph(child)), 2))[0]
    clone = ok(cuda.cuGraphClone(outer))
    fails(cuda.cuGraphNodeFindInClone(inside[0], clone), "INVALID_VALUE")
    body = ok(cuda.cuGraphChildGraphNodeGetGraph(ok(cuda.cuGraphNodeFindInClone(child, clone))))
    ok(cuda.cuGraphNodeFindInClone(inside[0], body))


def an_edge_by_which_a_kernel_starts_early_is_kept_and_leads_to_no_wait() -> None:
    gpu, word = Device(), Word()
    graph = ok(cuda.cuGraphCreate(0))
    first, second = add_kernel(graph, gpu, []), add_kernel(graph, gpu, [])
    early = cuda.CUgraphEdgeData()
    early.type, early.from_port = 1, 1  # programmatic
    ok(cuda.cuGraphAddDependencies(graph, [first], [second], [early], 1))
    clone = ok(cuda.cuGraphClone(graph))
    one, two = (ok(cuda.cuGraphNodeFindInClone(node, clone)) for node in (first, second))
    nodes, edges, count = ok(cuda.cuGraphNodeGetDependencies(two, 1))
    assert (int(nodes[0]), edges[0].type, edges[0].from_port, count) == (int(one), 1, 1, 1)
    fails(cuda.cuGraphRemoveDependencies(clone, [one], [two], [cuda.CUgraphEdgeData()], 1), "INVALID_VALUE")
    wait = add_wait(clone, word, [])
    fails(cuda.cuGraphAddDependencies(clone, [wait], [two], [early], 1), "INVALID_VALUE")
    ok(cuda.cuGraphRemoveDependencies(clone, [one], [two], [early], 1))
    ok(cuda.cuGraphRemoveDependencies(graph, [first], [second], None, 1))  # an edge of any kind
    ok(cuda.cuGraphAddDependencies(clone, [one, wait], [wait, two], None, 2))
    ok(cuda.cuGraphInstantiate(clone, 0))


def allocation(size: int) -> Any:
    wanted = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    wanted.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.poolProps.location.id = 0
    wanted.bytesize = size
    return wanted


def left() -> int:
    return int(ok(cuda.cuMemGetInfo())[0])


def only_one_executable_of_a_graph_that_allocates_exists() -> None:
    gpu = Device()
    graph, wanted = ok(cuda.cuGraphCreate(0)), allocation(64 << 20)
    alloc = ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, wanted))
    kernel = add_kernel(graph, gpu, [alloc])
    fails(cuda.cuGraphClone(graph), "NOT_SUPPORTED")
    outer = ok(cuda.cuGraphCreate(0))
    fails(cuda.cuGraphAddChildGraphNode(outer, None, 0, graph), "NOT_SUPPORTED")
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    fails(cuda.cuGraphInstantiate(graph, 0), "NOT_SUPPORTED")
    ok(cuda.cuGraphExecDestroy(executable))
    fails(cuda.cuGraphRemoveDependencies(graph, [alloc], [kernel], None, 1), "NOT_SUPPORTED")
    fails(cuda.cuGraphDestroyNode(kernel), "NOT_SUPPORTED")
    executable = ok(cuda.cuGraphInstantiate(graph, int(AUTO_FREE)))
    ok(cuda.cuGraphDestroy(graph))
    ok(cuda.cuGraphExecDestroy(executable))


def graph_memory_is_charged_from_launch_until_it_is_trimmed() -> None:
    gpu = Device()
    stream = ok(cuda.cuStreamCreate(1))
    graph, wanted, all_of_it = ok(cuda.cuGraphCreate(0)), allocation(64 << 20), left()
    alloc = ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, wanted))
    pointer = ok(cuda.cuGraphMemAllocNodeGetParams(alloc)).dptr
    assert int(pointer) == int(wanted.dptr)
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    assert left() == all_of_it
    ok(cuda.cuGraphLaunch(executable, stream))
    assert left() == all_of_it - (64 << 20)
    fails(cuda.cuGraphLaunch(executable, stream), "INVALID_VALUE")  # the last launch's allocation is not freed
    frees = ok(cuda.cuGraphCreate(0))
    ok(cuda.cuGraphAddMemFreeNode(frees, None, 0, pointer))
    fails(cuda.cuGraphAddMemFreeNode(frees, None, 0, pointer), "INVALID_VALUE")
    fails(cuda.cuGraphClone(frees), "NOT_SUPPORTED")
    ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(frees, 0)), stream))
    held = cuda.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
    assert left() == all_of_it - (64 << 20)
    assert int(ok(cuda.cuDeviceGetGraphMemAttribute(gpu.device, held))) == 64 << 20
    ok(cuda.cuDeviceGraphMemTrim(gpu.device))
    assert left() == all_of_it
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuMemFreeAsync(pointer, stream))
    ok(cuda.cuDeviceGraphMemTrim(gpu.device))
    assert left() == all_of_it
    ok(cuda.cuGraphExecDestroy(executable))
    executable = ok(cuda.cuGraphInstantiate(graph, int(AUTO_FREE)))
    for _ in range(3):
        ok(cuda.cuGraphLaunch(executable, stream))
    assert left() == all_of_it - (64 << 20)
    ok(cuda.cuMemFree(pointer))
    ok(cuda.cuDeviceGraphMemTrim(gpu.device))
    assert left() == all_of_it


def condition(graph: Any, gpu: Device, value: int) -> tuple[Any, Any]:
    """A new IF node of the graph, and the graph that is its body."""
    handle = ok(cuda.cuGraphConditionalHandleCreate(graph, gpu.context, value, 1))
    wanted = cuda.CUgraphNodeParams()
    wanted.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    wanted.conditional.handle, wanted.conditional.type, wanted.conditional.size = handle, IF, 1
    wanted.conditional.ctx = gpu.context
    node = ok(cuda.cuGraphAddNode(graph, None, None, 0, wanted))
    return node, wanted.conditional.phGraph_out[0]


def a_condition_runs_its_body_and_cannot_be_copied() -> None:
    gpu = Device()
    stream = gpu.stream()
    for value in (0, 1):
        graph = ok(cuda.cuGraphCreate(0))
        node, body = condition(graph, gpu, value)
        assert ok(cuda.cuGraphNodeGetType(node)) == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        add_kernel(body, gpu, [], 3000)
        fails(cuda.cuGraphClone(graph), "NOT_SUPPORTED")
        fails(cuda.cuGraphAddChildGraphNode(ok(cuda.cuGraphCreate(0)), None, 0, graph), "NOT_SUPPORTED")
        executable = ok(cuda.cuGraphInstantiate(graph, 0))
        fails(cuda.cuGraphInstantiate(graph, 0), "NOT_SUPPORTED")
        start = gpu.mark(stream)
        ok(cuda.cuGraphLaunch(executable, stream))
        assert (gpu.between(start, gpu.mark(stream)) >= 3000) == bool(value)
        ok(cuda.cuGraphExecUpdate(executable, graph))


def the_body_of_a_condition_cannot_wait() -> None:
    gpu, word = Device(), Word()
    graph = ok(cuda.cuGraphCreate(0))
    _, body = condition(graph, gpu, 1)
    add_kernel(body, gpu, [])
    ok(cuda.cuGraphExecDestroy(ok(cuda.cuGraphInstantiate(graph, 0))))
    add_wait(body, word, [])
    fails(cuda.cuGraphInstantiate(graph, 0), "INVALID_VALUE")


def a_graph_that_the_device_launches_cannot_wait() -> None:
    gpu, word = Device(), Word()
    graph = ok(cuda.cuGraphCreate(0))
    fails(cuda.cuGraphInstantiate(graph, int(DEVICE_LAUNCH)), "INVALID_VALUE")  # it has no work
    kernel = add_kernel(graph, gpu, [])
    ok(cuda.cuGraphInstantiate(graph, int(DEVICE_LAUNCH)))
    fails(cuda.cuGraphInstantiate(graph, int(DEVICE_LAUNCH) | int(AUTO_FREE)), "INVALID_VALUE")
    add_wait(graph, word, [kernel])
    ok(cuda.cuGraphInstantiate(graph, 0))
    fails(cuda.cuGraphInstantiate(graph, int(DEVICE_LAUNCH)), "INVALID_VALUE")


if __name__ == "__main__":
    main(globals())
