"""Stream capture and its rules, and graphs."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import GLOBAL, RELAXED, THREAD_LOCAL, Device, fails, main, ok


def in_thread(call: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join()
    return answers[0]


def captured(gpu: Device, stream: Any, mode: Any = GLOBAL, kernels: int = 3) -> Any:
    ok(cuda.cuStreamBeginCapture(stream, mode))
    for _ in range(kernels):
        gpu.launch(stream, 100)
    return ok(cuda.cuStreamEndCapture(stream))


def launches_are_recorded_and_not_run() -> None:
    gpu = Device()
    stream = gpu.stream()
    start = gpu.mark(stream)
    graph = captured(gpu, stream)
    assert gpu.between(start, gpu.mark(stream)) < 50
    assert int(ok(cuda.cuGraphGetNodes(graph))[1]) == 3
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    ok(cuda.cuGraphDestroy(graph))
    for _ in range(2):
        start = gpu.mark(stream)
        ok(cuda.cuGraphLaunch(executable, stream))
        assert abs(gpu.between(start, gpu.mark(stream)) - 300) < 10
    ok(cuda.cuGraphExecDestroy(executable))


def a_stream_joins_a_capture_by_an_event_and_must_join_back() -> None:
    gpu = Device()
    one, two = gpu.stream(), gpu.stream()
    fork, join = ok(cuda.cuEventCreate(2)), ok(cuda.cuEventCreate(2))
    for joined in (True, False):
        ok(cuda.cuStreamBeginCapture(one, GLOBAL))
        gpu.launch(one, 100)
        ok(cuda.cuEventRecord(fork, one))
        ok(cuda.cuStreamWaitEvent(two, fork, 0))
        assert ok(cuda.cuStreamIsCapturing(two)) == 1
        gpu.launch(two, 100)
        gpu.launch(one, 100)
        if joined:
            ok(cuda.cuEventRecord(join, two))
            ok(cuda.cuStreamWaitEvent(one, join, 0))
            gpu.launch(one, 100)
            graph = ok(cuda.cuStreamEndCapture(one))
            assert int(ok(cuda.cuGraphGetNodes(graph))[1]) == 4
            assert int(ok(cuda.cuGraphGetEdges(graph))[3]) == 4
        else:
            fails(cuda.cuStreamEndCapture(one), "STREAM_CAPTURE_UNJOINED")
        assert ok(cuda.cuStreamIsCapturing(two)) == 0


def synchronising_a_captured_stream_invalidates_the_capture() -> None:
    gpu = Device()
    for use in (cuda.cuStreamSynchronize, cuda.cuStreamQuery):
        stream = gpu.stream()
        ok(cuda.cuStreamBeginCapture(stream, RELAXED))
        fails(use(stream), "STREAM_CAPTURE_UNSUPPORTED")
        fails(gpu.try_launch(stream, 1), "STREAM_CAPTURE_INVALIDATED")
        fails(cuda.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")
        gpu.launch(stream, 1)
        ok(cuda.cuStreamSynchronize(stream))


def a_context_event_invalidates_the_capture() -> None:
    gpu = Device()
    stream, event = gpu.stream(), ok(cuda.cuEventCreate(2))
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    fails(cuda.cuCtxRecordEvent(gpu.context, event), 900)
    fails(cuda.cuStreamEndCapture(stream), 901)


def the_capture_mode_decides_what_other_threads_may_do() -> None:
    gpu = Device()
    stream, event = gpu.stream(), ok(cuda.cuEventCreate(2))

    def query() -> Any:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        return cuda.cuEventQuery(event)

    def relaxed_query() -> Any:
        ok(cuda.cuThreadExchangeStreamCaptureMode(RELAXED))
        return query()

    for mode, ask, error in (
        (GLOBAL, query, 900),
        (THREAD_LOCAL, query, 0),
        (RELAXED, query, 0),
        (GLOBAL, relaxed_query, 0),
    ):
        ok(cuda.cuStreamBeginCapture(stream, mode))
        answer = in_thread(ask)
        fails(answer, error)
        ended = cuda.cuStreamEndCapture(stream)
        fails(ended, 901 if error else 0)
    ok(cuda.cuStreamBeginCapture(stream, THREAD_LOCAL))
    fails(cuda.cuMemAlloc(4096), 900)  # the capturing thread itself
    fails(cuda.cuStreamEndCapture(stream), 901)
    assert ok(cuda.cuThreadExchangeStreamCaptureMode(RELAXED)) == GLOBAL
    assert ok(cuda.cuThreadExchangeStreamCaptureMode(GLOBAL)) == RELAXED


def a_capture_ends_where_it_began() -> None:
    gpu = Device()
    one, two, event = gpu.stream(), gpu.stream(), ok(cuda.cuEventCreate(2))
    fails(cuda.cuStreamEndCapture(one), "ILLEGAL_STATE")
    ok(cuda.cuStreamBeginCapture(one, GLOBAL))
    fails(cuda.cuStreamBeginCapture(one, GLOBAL), "ILLEGAL_STATE")
    ok(cuda.cuEventRecord(event, one))
    fails(cuda.cuEventQuery(event), "CAPTURED_EVENT")
    fails(cuda.cuStreamEndCapture(one), "STREAM_CAPTURE_INVALIDATED")
    ok(cuda.cuStreamBeginCapture(one, GLOBAL))
    ok(cuda.cuEventRecord(event, one))
    ok(cuda.cuStreamWaitEvent(two, event, 0))
    fails(cuda.cuStreamEndCapture(two), "STREAM_CAPTURE_UNMATCHED")
    fails(cuda.cuStreamEndCapture(one), "STREAM_CAPTURE_INVALIDATED")
    ok(cuda.cuStreamBeginCapture(one, GLOBAL))
    fails(in_thread(lambda: cuda.cuStreamEndCapture(one)), "STREAM_CAPTURE_WRONG_THREAD")
    fails(cuda.cuStreamEndCapture(one), "STREAM_CAPTURE_INVALIDATED")
    fails(cuda.cuStreamBeginCapture(0, GLOBAL), "STREAM_CAPTURE_UNSUPPORTED")


def work_in_the_legacy_stream_invalidates_the_capture_of_a_blocking_stream() -> None:
    gpu = Device()
    blocking, free = gpu.stream(flags=0), gpu.stream()
    ok(cuda.cuStreamBeginCapture(blocking, RELAXED))
    fails(gpu.try_launch(0, 1), "STREAM_CAPTURE_IMPLICIT")
    fails(cuda.cuStreamEndCapture(blocking), "STREAM_CAPTURE_INVALIDATED")
    ok(cuda.cuStreamBeginCapture(free, RELAXED))
    gpu.launch(0, 1)
    ok(cuda.cuStreamEndCapture(free))


def captures_do_not_mix() -> None:
    gpu = Device()
    one, two, event, plain = gpu.stream(), gpu.stream(), ok(cuda.cuEventCreate(2)), ok(cuda.cuEventCreate(2))
    ok(cuda.cuStreamBeginCapture(one, RELAXED))
    ok(cuda.cuStreamBeginCapture(two, RELAXED))
    ok(cuda.cuEventRecord(event, one))
    fails(cuda.cuStreamWaitEvent(two, event, 0), "STREAM_CAPTURE_MERGE")
    fails(cuda.cuStreamEndCapture(one), "STREAM_CAPTURE_INVALIDATED")
    fails(cuda.cuStreamEndCapture(two), "STREAM_CAPTURE_INVALIDATED")
    ok(cuda.cuEventRecord(plain, two))
    ok(cuda.cuStreamBeginCapture(one, RELAXED))
    fails(cuda.cuStreamWaitEvent(one, plain, 0), "STREAM_CAPTURE_ISOLATION")
    fails(cuda.cuStreamEndCapture(one), "STREAM_CAPTURE_INVALIDATED")


def graphs_can_be_built_updated_and_copied_without_a_capture() -> None:
    gpu = Device()
    stream = gpu.stream()
    graph = ok(cuda.cuGraphCreate(0))
    call = cuda.CUDA_KERNEL_NODE_PARAMS()
    call.func, call.kernelParams = gpu.timed, ((250, 1), (ctypes.c_uint64, ctypes.c_uint32))
    for side in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
        setattr(call, side, 1)
    kernel = ok(cuda.cuGraphAddKernelNode(graph, None, 0, call))
    setting = cuda.CUDA_MEMSET_NODE_PARAMS()
    setting.dst, setting.elementSize, setting.value = ok(cuda.cuMemAlloc(64)), 4, 3
    setting.width, setting.height = 16, 1
    memset = ok(cuda.cuGraphAddMemsetNode(graph, [kernel], 1, setting, gpu.context))
    empty = ok(cuda.cuGraphAddEmptyNode(graph, [kernel, memset], 2))
    fails(cuda.cuGraphAddDependencies(graph, [empty], [kernel], None, 1), "INVALID_VALUE")
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    start = gpu.mark(stream)
    ok(cuda.cuGraphLaunch(executable, stream))
    assert 250 <= gpu.between(start, gpu.mark(stream)) < 260
    back = bytearray(64)
    ok(cuda.cuMemcpyDtoH(back, setting.dst, 64))
    assert bytes(back) == b"\x03\0\0\0" * 16
    call.kernelParams = ((700, 1), (ctypes.c_uint64, ctypes.c_uint32))
    ok(cuda.cuGraphExecKernelNodeSetParams(executable, kernel, call))
    start = gpu.mark(stream)
    ok(cuda.cuGraphLaunch(executable, stream))
    assert 700 <= gpu.between(start, gpu.mark(stream)) < 710
    clone = ok(cuda.cuGraphClone(graph))
    assert int(ok(cuda.cuGraphGetNodes(clone))[1]) == 3
    assert ok(cuda.cuGraphExecUpdate(executable, clone)).result == 0
    ok(cuda.cuGraphAddEmptyNode(clone, None, 0))
    fails(cuda.cuGraphExecUpdate(executable, clone), "GRAPH_EXEC_UPDATE_FAILURE")
    child = ok(cuda.cuGraphAddChildGraphNode(graph, [empty], 1, clone))
    assert ok(cuda.cuGraphNodeGetType(child)) == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH


def copies_and_host_functions_are_captured() -> None:
    gpu = Device()
    stream, calls = gpu.stream(), []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: calls.append(data))
    pointer, source = ok(cuda.cuMemAlloc(64)), ctypes.create_string_buffer(b"a" * 64, 64)
    ok(cuda.cuStreamBeginCapture(stream, THREAD_LOCAL))
    ok(cuda.cuMemcpyHtoDAsync(pointer, ctypes.addressof(source), 64, stream))
    ok(cuda.cuLaunchHostFunc(stream, cuda.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 7))
    executable = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
    source.raw = b"b" * 64
    assert not calls
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))
    back = bytearray(64)
    ok(cuda.cuMemcpyDtoH(back, pointer, 64))
    assert (bytes(back), calls) == (b"b" * 64, [7])


if __name__ == "__main__":
    main(globals())
