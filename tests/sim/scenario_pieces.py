"""Copies of a graph that each hold a part of its nodes, updates of them, and what captures record."""

import ctypes
from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import RELAXED, Device, fails, main, ok
from tests.sim.scenario_graph import Word, add_kernel, add_wait, allocation, call

REFUSED = "GRAPH_EXEC_UPDATE_FAILURE"
TYPE = cuda.CUgraphNodeType
HOST, DEVICE = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
EARLY = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def chain(gpu: Device, count: int, microseconds: int = 1000) -> tuple[Any, list[Any]]:
    """A graph of kernels, one after the other."""
    graph = ok(cuda.cuGraphCreate(0))
    nodes: list[Any] = []
    for _ in range(count):
        nodes.append(add_kernel(graph, gpu, nodes[-1:], microseconds))
    return graph, nodes


def part(graph: Any, nodes: list[Any], kept: range) -> Any:
    """A copy of the graph without the other nodes."""
    clone = ok(cuda.cuGraphClone(graph))
    for index, node in enumerate(nodes):
        if index not in kept:
            ok(cuda.cuGraphDestroyNode(ok(cuda.cuGraphNodeFindInClone(node, clone))))
    return clone


def run(gpu: Device, stream: Any, *executables: Any) -> float:
    """Launch executables, and return the microseconds that they took together."""
    start = gpu.mark(stream)
    for executable in executables:
        ok(cuda.cuGraphLaunch(executable, stream))
    return gpu.between(start, gpu.mark(stream))


def parts_of_a_graph_take_its_time() -> None:
    gpu = Device()
    stream = gpu.stream()
    graph, nodes = chain(gpu, 10)
    parts = [part(graph, nodes, kept) for kept in (range(4), range(4, 4), range(4, 10))]
    assert [ok(cuda.cuGraphGetNodes(each))[1] for each in parts] == [4, 0, 6]
    for each in (parts[0], parts[2]):
        inside, count = ok(cuda.cuGraphGetNodes(each, 10))
        before, after, _, edges = ok(cuda.cuGraphGetEdges(each, 10))
        assert edges == count - 1  # in the order of their creation, and without the edges of destroyed nodes
        assert [int(node) for node in before[:edges]] == [int(node) for node in inside[: count - 1]]
        assert [int(node) for node in after[:edges]] == [int(node) for node in inside[1:count]]
    executables = [ok(cuda.cuGraphInstantiate(each, 0)) for each in parts]
    assert run(gpu, stream, *executables) == run(gpu, stream, ok(cuda.cuGraphInstantiate(graph, 0))) == 10000
    ok(cuda.cuGraphDestroy(graph))  # copies do not need their original
    assert run(gpu, stream, *executables) == 10000


def a_part_takes_over_what_the_program_sets() -> None:
    gpu = Device()
    stream = gpu.stream()
    graph, nodes = chain(gpu, 6)
    copy = part(graph, nodes, range(3, 6))
    executable = ok(cuda.cuGraphInstantiate(copy, 0))
    node = ok(cuda.cuGraphNodeFindInClone(nodes[4], copy))
    ok(cuda.cuGraphKernelNodeSetParams(node, call(gpu, 5000)))
    assert run(gpu, stream, executable) == 3000  # a graph does not change its executables
    ok(cuda.cuGraphExecUpdate(executable, copy))
    assert run(gpu, stream, executable) == 7000
    ok(cuda.cuGraphKernelNodeSetParams(node, ok(cuda.cuGraphKernelNodeGetParams(nodes[4]))))
    ok(cuda.cuGraphExecUpdate(executable, copy))
    assert run(gpu, stream, executable) == 3000
    fails(cuda.cuGraphExecUpdate(executable, graph), REFUSED)
    ok(cuda.cuGraphExecKernelNodeSetParams(executable, node, call(gpu, 2000)))
    assert run(gpu, stream, executable) == 4000


def a_launch_waits_for_the_last_one_of_its_executable() -> None:
    gpu = Device()
    one, two = gpu.stream(), gpu.stream()
    graph = ok(cuda.cuGraphCreate(0))
    ok(cuda.cuGraphAddKernelNode(graph, None, 0, call(gpu, 1000, 10)))
    same, other = (ok(cuda.cuGraphInstantiate(graph, 0)) for _ in range(2))
    for executables, wanted in (((same, same), 2000), ((same, other), 1000)):
        start = gpu.mark(one)
        for executable, stream in zip(executables, (one, two), strict=True):
            ok(cuda.cuGraphLaunch(executable, stream))
        gpu.between(start, gpu.mark(one))
        assert gpu.between(start, gpu.mark(two)) == wanted


def an_executable_may_be_destroyed_while_it_runs() -> None:
    gpu = Device()
    stream = gpu.stream()
    graph, _ = chain(gpu, 5)
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    start = gpu.mark(stream)
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuGraphExecDestroy(executable))
    assert gpu.between(start, gpu.mark(stream)) == 5000
    fails(cuda.cuGraphLaunch(executable, stream), "INVALID_VALUE")


def copy_of(target: int, source: int, size: int, kinds: tuple[Any, Any]) -> Any:
    box = cuda.CUDA_MEMCPY3D()
    box.srcMemoryType, box.dstMemoryType = kinds
    box.srcHost = box.srcDevice = source
    box.dstHost = box.dstDevice = target
    box.WidthInBytes, box.Height, box.Depth = size, 1, 1
    return box


def what_an_update_cannot_change_is_refused() -> None:
    gpu, word = Device(), Word()
    memory = int(ok(cuda.cuMemAlloc(64)))
    graph = ok(cuda.cuGraphCreate(0))
    node = ok(cuda.cuGraphAddMemcpyNode(graph, None, 0, copy_of(memory, word.address, 8, (HOST, DEVICE)), gpu.context))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    ok(cuda.cuGraphMemcpyNodeSetParams(node, copy_of(memory, word.address, 4, (HOST, DEVICE))))
    ok(cuda.cuGraphExecUpdate(executable, graph))
    ok(cuda.cuGraphMemcpyNodeSetParams(node, copy_of(memory, memory + 32, 4, (DEVICE, DEVICE))))
    fails(cuda.cuGraphExecUpdate(executable, graph), REFUSED)
    inner, (first, _) = chain(gpu, 2)
    outer = ok(cuda.cuGraphCreate(0))
    child = ok(cuda.cuGraphAddChildGraphNode(outer, None, 0, inner))
    executable, changed = ok(cuda.cuGraphInstantiate(outer, 0)), ok(cuda.cuGraphCreate(0))
    ok(cuda.cuGraphKernelNodeSetParams(first, call(gpu, 4000)))
    ok(cuda.cuGraphAddChildGraphNode(changed, None, 0, inner))
    ok(cuda.cuGraphExecUpdate(executable, changed))
    assert run(gpu, gpu.stream(), executable) == 5000
    ok(cuda.cuGraphRemoveDependencies(ok(cuda.cuGraphChildGraphNodeGetGraph(child)), *edges_of(child), None, 1))
    fails(cuda.cuGraphExecUpdate(executable, outer), REFUSED)


def edges_of(child: Any) -> tuple[list[Any], list[Any]]:
    before, after, _, count = ok(cuda.cuGraphGetEdges(ok(cuda.cuGraphChildGraphNodeGetGraph(child)), 8))
    return before[:count], after[:count]


def captured(gpu: Device, stream: Any, *microseconds: int) -> Any:
    """A graph of the kernels that a capture of the stream saw."""
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    for each in microseconds:
        gpu.launch(stream, each)
    return ok(cuda.cuStreamEndCapture(stream))


def an_update_does_not_move_a_kernel_to_another_green_context() -> None:
    gpu = Device()
    plain, green = gpu.stream(), gpu.green_stream(64)
    graphs = {stream: captured(gpu, stream, 1000) for stream in (plain, green)}
    for own, other in ((plain, green), (green, plain)):
        executable = ok(cuda.cuGraphInstantiate(graphs[own], 0))
        fails(cuda.cuGraphExecUpdate(executable, graphs[other]), REFUSED)
        ok(cuda.cuGraphExecUpdate(executable, captured(gpu, own, 2000)))
        copy = ok(cuda.cuGraphClone(graphs[own]))
        (node,), _ = ok(cuda.cuGraphGetNodes(copy, 1))
        ok(cuda.cuGraphKernelNodeSetParams(node, ok(cuda.cuGraphKernelNodeGetParams(node))))
        ok(cuda.cuGraphExecUpdate(executable, copy))


def types_of(graph: Any) -> list[Any]:
    return [ok(cuda.cuGraphNodeGetType(node)) for node in ok(cuda.cuGraphGetNodes(graph, 16))[0] if int(node)]


def a_capture_records_memory_and_waits_and_refuses_graphs() -> None:
    gpu, word = Device(), Word()
    stream = gpu.stream()
    executable = ok(cuda.cuGraphInstantiate(captured(gpu, stream, 1000), 0))
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    pointer = ok(cuda.cuMemAllocAsync(1 << 20, stream))
    ok(cuda.cuStreamWaitValue32(stream, word.address, 0, 0))
    ok(cuda.cuStreamWriteValue32(stream, word.address, 3, 0))
    ok(cuda.cuMemFreeAsync(pointer, stream))
    graph = ok(cuda.cuStreamEndCapture(stream))
    waits = TYPE.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
    assert types_of(graph) == [TYPE.CU_GRAPH_NODE_TYPE_MEM_ALLOC, waits, waits, TYPE.CU_GRAPH_NODE_TYPE_MEM_FREE]
    ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(graph, 0)), stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert word.word.value == 3
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    fails(cuda.cuGraphLaunch(executable, stream), "STREAM_CAPTURE_UNSUPPORTED")
    fails(cuda.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")


def a_captured_kernel_keeps_its_attributes() -> None:
    gpu = Device()
    stream = gpu.stream()
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    config, attribute = cuda.CUlaunchConfig(), cuda.CUlaunchAttribute()
    attribute.id = EARLY
    attribute.value.programmaticStreamSerializationAllowed = 1
    for side in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
        setattr(config, side, 1)
    config.hStream, config.attrs, config.numAttrs = stream, [attribute], 1
    gpu.launch(stream, 1000)
    ok(cuda.cuLaunchKernelEx(config, gpu.timed, ((1000, 1), (ctypes.c_uint64, ctypes.c_uint32)), 0))
    graph = ok(cuda.cuStreamEndCapture(stream))
    _, _, (edge,), count = ok(cuda.cuGraphGetEdges(graph, 1))
    assert (count, edge.type, edge.from_port) == (1, 1, 1)
    first, second = ok(cuda.cuGraphGetNodes(ok(cuda.cuGraphClone(graph)), 2))[0]
    for source, wanted in ((second, 1), (first, 0)):
        assert ok(cuda.cuGraphKernelNodeGetAttribute(source, EARLY)).programmaticStreamSerializationAllowed == wanted
    ok(cuda.cuGraphKernelNodeCopyAttributes(first, second))
    assert ok(cuda.cuGraphKernelNodeGetAttribute(first, EARLY)).programmaticStreamSerializationAllowed == 1


def a_graph_that_allocates_has_one_executable_and_no_copy() -> None:
    gpu, word = Device(), Word()
    graph = ok(cuda.cuGraphCreate(0))
    alloc = ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, allocation(1 << 20)))
    add_wait(graph, word, [add_kernel(graph, gpu, [alloc])])
    ok(cuda.cuGraphInstantiate(graph, 0))
    fails(cuda.cuGraphInstantiate(graph, 0), "NOT_SUPPORTED")
    fails(cuda.cuGraphClone(graph), "NOT_SUPPORTED")


if __name__ == "__main__":
    main(globals())
