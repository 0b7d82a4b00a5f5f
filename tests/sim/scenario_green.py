"""Green contexts, on the virtual clock: times are exact."""

import ctypes
import threading
from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import GLOBAL, SM, Device, fails, main, ok
from tests.sim.scenario_work import near


def sizes(resources: Any) -> list[int]:
    """SMs of each resource."""
    return [int(resource.sm.smCount) for resource in resources]


def a_device_splits_into_groups_of_eight() -> None:
    gpu = Device()
    everything = ok(cuda.cuDeviceGetDevResource(gpu.device, SM))
    assert sizes([everything, ok(cuda.cuCtxGetDevResource(gpu.context, SM))]) == [132, 132]
    assert int(everything.sm.minSmPartitionSize) == int(everything.sm.smCoscheduledAlignment) == 8
    for least, flags, wanted, groups, rest in (
        (0, 0, 99, [8] * 16, [4]),
        (9, 0, 99, [16] * 8, [4]),
        (64, 0, 1, [64], [68]),
        (66, 0, 2, [72], [60]),
        (66, 1, 2, [66, 66], [0]),
        (3, 1, 1, [4], [128]),
    ):
        made, count, remainder = ok(cuda.cuDevSmResourceSplitByCount(wanted, everything, flags, least))
        assert int(count) == len(groups)
        assert (sizes(made)[: int(count)], sizes([remainder])) == (groups, rest)
    fails(cuda.cuDevSmResourceSplitByCount(1, everything, 0, 130), "INVALID_RESOURCE_CONFIGURATION")
    fails(cuda.cuDevSmResourceSplitByCount(1, everything, 0, 133), "INVALID_VALUE")
    fails(cuda.cuDevSmResourceSplitByCount(1, everything, 4, 8), "INVALID_VALUE")
    workqueue = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_WORKQUEUE
    fails(cuda.cuDeviceGetDevResource(gpu.device, workqueue), "INVALID_RESOURCE_TYPE")


def the_rest_can_be_split_again_and_groups_cannot() -> None:
    gpu = Device()
    everything = ok(cuda.cuDeviceGetDevResource(gpu.device, SM))
    first, _, rest = ok(cuda.cuDevSmResourceSplitByCount(1, everything, 0, 32))
    second, _, rest = ok(cuda.cuDevSmResourceSplitByCount(1, rest, 0, 64))
    assert sizes([first[0], second[0], rest]) == [32, 64, 36]
    fails(cuda.cuDevSmResourceSplitByCount(1, first[0], 0, 8), "INVALID_RESOURCE_CONFIGURATION")
    fails(cuda.cuDevResourceGenerateDesc([first[0], second[0]], 2), "INVALID_RESOURCE_CONFIGURATION")
    fails(cuda.cuDevResourceGenerateDesc([cuda.CUdevResource()], 1), "INVALID_RESOURCE_TYPE")
    both, _, _ = ok(cuda.cuDevSmResourceSplitByCount(2, everything, 0, 32))
    green = ok(cuda.cuGreenCtxCreate(ok(cuda.cuDevResourceGenerateDesc(both, 2)), gpu.device, 1))
    whole = ok(cuda.cuGreenCtxGetDevResource(green, SM))
    assert sizes([whole]) == [64]
    assert sizes(ok(cuda.cuDevSmResourceSplitByCount(2, whole, 0, 32))[0]) == [32, 32]


def a_kernel_on_fewer_sms_takes_longer_in_proportion() -> None:
    gpu = Device()
    stream = gpu.green_stream(64)
    for sms, wanted in ((132, 1000 * 132 / 64), (64, 1000), (10, 1000)):
        start = gpu.mark(stream)
        gpu.launch(stream, 1000, sms)  # with a function handle of the primary context
        near(gpu.between(start, gpu.mark(stream)), wanted)


def other_streams_use_the_sms_outside_a_partition() -> None:
    gpu = Device()
    green, plain = gpu.green_stream(64), gpu.stream()
    start = gpu.mark(plain)
    gpu.launch(green, 10_000, sms=132)
    for _ in range(2):
        gpu.launch(plain, 1000, sms=68)
    near(gpu.between(start, gpu.mark(plain)), 2000)
    gpu.launch(plain, 1000, sms=132)  # on the 68 SMs outside the partition
    near(gpu.between(start, gpu.mark(plain)), 2000 + 1000 * 132 / 68)
    near(gpu.between(start, gpu.mark(green)), 10_000 * 132 / 64)


def a_kernel_gets_the_sms_that_a_partition_no_longer_uses() -> None:
    gpu = Device()
    green, plain = gpu.green_stream(64), gpu.stream()
    start = gpu.mark(plain)
    gpu.launch(green, 1000, sms=64)
    gpu.launch(plain, 2000, sms=132)
    near(gpu.between(start, gpu.mark(plain)), 1000 + 2000 - 1000 * 68 / 132)


def kernels_of_two_partitions_overlap_unless_they_have_the_same_sms() -> None:
    gpu = Device()
    for group, together in ((0, 2000), (1, 1000)):
        one, two = gpu.green_stream(64, 0), gpu.green_stream(64, group)
        start = gpu.mark(one)
        gpu.launch(one, 1000, 64)
        gpu.launch(two, 1000, 64)
        near(max(gpu.between(start, gpu.mark(one)), gpu.between(start, gpu.mark(two))), together)


def priority_decides_which_kernel_starts_on_a_partition_too() -> None:
    gpu = Device()
    plain, low, high = gpu.stream(), gpu.green_stream(32), gpu.green_stream(32, priority=-3)
    assert (int(ok(cuda.cuStreamGetPriority(high))), int(ok(cuda.cuStreamGetFlags(high)))) == (-3, 1)
    start = gpu.mark(plain)
    gpu.launch(plain, 100)
    gpu.launch(low, 1000, sms=32)
    gpu.launch(high, 1000, sms=32)
    near(gpu.between(start, gpu.mark(high)), 1100)
    near(gpu.between(start, gpu.mark(low)), 2100)


def events_order_green_and_ordinary_streams() -> None:
    gpu = Device()
    plain, green = gpu.stream(flags=0), gpu.green_stream(64)
    start = gpu.mark(plain)
    for _ in range(5):  # each stream waits for the other in turn
        gpu.launch(plain, 100, sms=8)
        ok(cuda.cuStreamWaitEvent(green, gpu.mark(plain), 0))
        gpu.launch(green, 100, sms=8)
        ok(cuda.cuStreamWaitEvent(plain, gpu.mark(green), 0))
    near(gpu.between(start, gpu.mark(plain)), 1000)


def a_green_stream_and_the_legacy_stream_do_not_wait_for_each_other() -> None:
    gpu = Device()
    green, clock = gpu.green_stream(64), gpu.stream()
    start = gpu.mark(clock)
    gpu.launch(green, 1000, sms=8)
    gpu.launch(0, 300, sms=8)
    gpu.launch(green, 1000, sms=8)
    near(gpu.between(start, gpu.mark(0)), 300)
    near(gpu.between(start, gpu.mark(green)), 2000)


def a_wait_for_a_context_includes_its_green_contexts() -> None:
    gpu = Device()
    plain, green = gpu.stream(), gpu.green_stream(64)
    start = gpu.mark(plain)
    gpu.launch(green, 1000, sms=8)
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuStreamQuery(green))
    gpu.launch(green, 500, sms=8)
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuCtxRecordEvent(gpu.context, event))
    near(gpu.between(start, event), 1500)


def an_event_of_a_green_context_waits_for_its_streams_only() -> None:
    gpu = Device()
    green = gpu.green(64)
    one, two = (ok(cuda.cuGreenCtxStreamCreate(green, 1, 0)) for _ in range(2))
    plain, other, event = gpu.stream(), gpu.green_stream(8, 14), ok(cuda.cuEventCreate(0))
    start = gpu.mark(plain)
    for stream, microseconds in ((plain, 5000), (other, 4000), (one, 400), (two, 600)):
        gpu.launch(stream, microseconds, sms=8)
    ok(cuda.cuGreenCtxRecordEvent(green, event))
    near(gpu.between(start, event), 600)
    slow = gpu.mark(other)
    ok(cuda.cuGreenCtxWaitEvent(green, slow))
    gpu.launch(one, 100, sms=8)
    near(gpu.between(start, gpu.mark(one)), 4100)


def a_green_context_can_be_the_current_context() -> None:
    gpu = Device()
    green = gpu.green(64)
    name = ok(cuda.cuCtxFromGreenCtx(green))
    stream = ok(cuda.cuGreenCtxStreamCreate(green, 1, 0))
    assert int(ok(cuda.cuStreamGetGreenCtx(stream))) == int(green)
    assert int(ok(cuda.cuStreamGetGreenCtx(gpu.stream()))) == 0
    assert int(ok(cuda.cuStreamGetCtx(stream))) == int(name) != int(gpu.context)
    plain = gpu.stream()
    ok(cuda.cuCtxSetCurrent(name))
    assert int(ok(cuda.cuCtxGetCurrent())) == int(name)
    assert int(ok(cuda.cuCtxGetDevice())) == int(gpu.device)
    assert int(ok(cuda.cuCtxGetId(name))) == int(ok(cuda.cuGreenCtxGetId(green)))
    assert sizes([ok(cuda.cuCtxGetDevResource(name, SM))]) == [64]
    ok(cuda.cuMemFree(ok(cuda.cuMemAlloc(4096))))
    start = gpu.mark(plain)
    gpu.launch(plain, 5000, sms=8)
    for own in (0, ok(cuda.cuStreamCreate(1)), stream):
        begun = gpu.mark(own)
        gpu.launch(own, 640, sms=128)
        near(gpu.between(begun, gpu.mark(own)), 1280)
    ok(cuda.cuCtxSynchronize())
    fails(cuda.cuStreamQuery(plain), "NOT_READY")
    near(gpu.between(start, gpu.mark(plain)), 5000)
    fails(cuda.cuStreamSynchronize(2), "INVALID_HANDLE")  # the per-thread default stream
    fails(cuda.cuCtxDestroy(name), "INVALID_CONTEXT")
    ok(cuda.cuGreenCtxDestroy(green))
    fails(cuda.cuMemAlloc(4096), "CONTEXT_IS_DESTROYED")


def a_green_context_is_current_to_one_thread_at_a_time() -> None:
    gpu = Device()
    name = ok(cuda.cuCtxFromGreenCtx(gpu.green(64)))

    def elsewhere(context: Any) -> Any:
        """Make the context current to a thread that then ends, and return the answer."""
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(cuda.cuCtxSetCurrent(context)))
        thread.start()
        thread.join()
        return answers[0]

    ok(cuda.cuCtxPushCurrent(name))
    ok(cuda.cuCtxPushCurrent(name))
    ok(cuda.cuCtxPopCurrent())
    fails(elsewhere(name), "INVALID_CONTEXT")
    ok(elsewhere(gpu.context))
    ok(cuda.cuCtxPopCurrent())
    ok(elsewhere(name))
    ok(cuda.cuCtxSetCurrent(gpu.context))
    while cuda.cuCtxSetCurrent(name)[0] == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT:
        pass  # Python no longer knows the other thread, but it may not have ended yet
    ok(cuda.cuCtxSetCurrent(gpu.context))
    ok(elsewhere(name))


def the_second_version_of_stream_get_ctx_returns_the_primary_and_the_green_context() -> None:
    gpu = Device()
    driver = ctypes.CDLL("libcuda.so.1")
    green = gpu.green(16)
    for stream, belongs in ((ok(cuda.cuGreenCtxStreamCreate(green, 1, 0)), int(green)), (gpu.stream(), 0)):
        context, its_green = ctypes.c_void_p(), ctypes.c_void_p(1)
        handle = ctypes.c_void_p(int(stream))
        assert driver.cuStreamGetCtx_v2(handle, ctypes.byref(context), ctypes.byref(its_green)) == 0
        assert (context.value, its_green.value or 0) == (int(gpu.context), belongs)


def streams_of_a_destroyed_green_context_can_only_be_destroyed() -> None:
    gpu = Device()
    green = gpu.green(64)
    stream, captured = (ok(cuda.cuGreenCtxStreamCreate(green, 1, 0)) for _ in range(2))
    start = gpu.mark(gpu.stream())
    gpu.launch(stream, 1000, sms=64)
    end = gpu.mark(stream)
    ok(cuda.cuStreamBeginCapture(captured, GLOBAL))
    ok(cuda.cuGreenCtxDestroy(green))
    near(gpu.between(start, end), 1000)
    for answer in (gpu.try_launch(stream, 1), cuda.cuStreamSynchronize(stream), cuda.cuStreamEndCapture(captured)):
        fails(answer, 917)  # STREAM_DETACHED
    for dead in (stream, captured):
        ok(cuda.cuStreamDestroy(dead))
    fails(cuda.cuGreenCtxDestroy(green), "INVALID_CONTEXT")
    fails(cuda.cuGreenCtxStreamCreate(green, 1, 0), "INVALID_CONTEXT")
    gpu.launch(0, 10)
    ok(cuda.cuCtxSynchronize())


def a_green_context_retains_the_primary_context_and_ends_at_its_reset() -> None:
    gpu = Device()
    green = gpu.green(64)
    stream = ok(cuda.cuGreenCtxStreamCreate(green, 1, 0))
    ok(cuda.cuDevicePrimaryCtxRelease(gpu.device))
    gpu.launch(stream, 100)
    ok(cuda.cuStreamSynchronize(stream))
    gpu.launch(stream, 100)
    ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
    fails(cuda.cuStreamSynchronize(stream), "INVALID_HANDLE")
    fails(cuda.cuGreenCtxDestroy(green), "INVALID_CONTEXT")
    again = Device()
    start = again.mark(0)
    again.launch(0, 100)  # on all SMs
    near(again.between(start, again.mark(0)), 100)
    ok(cuda.cuGreenCtxDestroy(again.green(8)))
    ok(cuda.cuCtxSynchronize())


def invalid_arguments_are_refused() -> None:
    gpu = Device()
    green = gpu.green(64)
    everything = ok(cuda.cuDeviceGetDevResource(gpu.device, SM))
    described = ok(cuda.cuDevResourceGenerateDesc([everything], 1))
    fails(cuda.cuGreenCtxCreate(described, gpu.device, 0), "INVALID_VALUE")
    fails(cuda.cuGreenCtxCreate(described, 1, 1), "INVALID_DEVICE")
    fails(cuda.cuGreenCtxStreamCreate(green, 0, 0), "INVALID_VALUE")
    fails(cuda.cuGreenCtxCreate(0, gpu.device, 1), "INVALID_VALUE")


def a_graph_runs_on_the_sms_of_the_captured_stream() -> None:
    gpu = Device()
    plain, green = gpu.stream(), gpu.green_stream(66)
    for stream, wanted in ((plain, 660), (green, 660 * 132 / 72)):
        ok(cuda.cuStreamBeginCapture(stream, GLOBAL))
        gpu.launch(stream, 660)
        executable = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
        start = gpu.mark(green)
        ok(cuda.cuGraphLaunch(executable, green))
        near(gpu.between(start, gpu.mark(green)), wanted)


def a_kernel_may_need_the_sms_that_its_blocks_fill() -> None:
    gpu = Device()
    green = gpu.green_stream(64)
    for threads, blocks, shared, sms in ((1024, 256, 0, 128), (256, 256, 0, 32), (32, 33, 0, 2), (256, 96, 48_000, 24)):
        each = int(ok(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(gpu.filled, threads, shared)))
        assert -(-blocks // each) == sms
        start = gpu.mark(green)
        arguments = ((1000,), (ctypes.c_uint64,))
        ok(cuda.cuLaunchKernel(gpu.filled, blocks, 1, 1, threads, 1, 1, shared, green, arguments, 0))
        near(gpu.between(start, gpu.mark(green)), 1000 * max(1, sms / 64))
    assert ok(cuda.cuFuncGetName(gpu.filled)) == b"filled"


def blocks_that_wait_for_each_other_need_all_their_sms_at_once() -> None:
    gpu = Device()
    plain, green = gpu.stream(), gpu.green_stream(64)

    def meet(stream: Any, blocks: int) -> Any:
        """Launch blocks of which two fit on an SM."""
        arguments = ((1000,), (ctypes.c_uint64,))
        ok(cuda.cuLaunchKernel(gpu.meeting, blocks, 1, 1, 1024, 1, 1, 0, stream, arguments, 0))
        return gpu.mark(stream)

    start = gpu.mark(green)
    near(gpu.between(start, meet(green, 128)), 1000)
    start = gpu.mark(plain)
    gpu.launch(green, 1000, 64)
    near(gpu.between(start, meet(plain, 264)), 2000)  # until the other kernel ends, the blocks spin on the other SMs
    stuck = meet(green, 130)
    gpu.launch(plain, 5000, 68)
    ok(cuda.cuStreamSynchronize(plain))
    fails(cuda.cuEventQuery(stuck), "NOT_READY")
    assert gpu.between(start, gpu.mark(plain)) > 7000


if __name__ == "__main__":
    main(globals())
