"""Streams, events and kernels, on the virtual clock: times are exact."""

import concurrent.futures
import ctypes

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, fails, main, ok


def near(value: float, wanted: float) -> None:
    """Assert equality, except for the microseconds that queries take."""
    assert abs(value - wanted) < 0.02 * wanted + 5, f"{value} instead of {wanted}"


def a_kernel_takes_its_time() -> None:
    gpu = Device()
    stream = gpu.stream()
    start = gpu.mark(stream)
    gpu.launch(stream, 700)
    near(gpu.between(start, gpu.mark(stream)), 700)


def kernels_of_one_stream_run_one_after_the_other() -> None:
    gpu = Device()
    stream = gpu.stream()
    start = gpu.mark(stream)
    for _ in range(10):
        gpu.launch(stream, 100, sms=1)
    near(gpu.between(start, gpu.mark(stream)), 1000)


def kernels_of_two_streams_overlap_as_far_as_there_are_sms() -> None:
    # Each kernel needs 100 SMs in the second case. The second kernel has 32 SMs until the first ends, then all 100.
    gpu = Device()
    for sms, together in ((66, 1000), (100, 1680), (132, 2000)):
        one, two = gpu.stream(), gpu.stream()
        start = gpu.mark(one)
        gpu.launch(one, 1000, sms)
        gpu.launch(two, 1000, sms)
        ends = [gpu.mark(one), gpu.mark(two)]
        near(gpu.between(start, ends[0]), 1000)
        near(gpu.between(start, ends[1]), together)


def a_kernel_that_has_fewer_sms_than_it_needs_gets_more_by_priority() -> None:
    gpu = Device()
    holder, low, high = gpu.stream(), gpu.stream(priority=0), gpu.stream(priority=-5)
    start = gpu.mark(holder)
    gpu.launch(holder, 1000, sms=112)
    gpu.launch(low, 400, sms=100)  # has 20 SMs until the two other kernels are done
    gpu.launch(high, 500, sms=132)
    near(gpu.between(start, gpu.mark(holder)), 1000)
    near(gpu.between(start, gpu.mark(high)), 1000 + 500 * 132 / 112)  # low keeps its SMs
    near(gpu.between(start, gpu.mark(low)), 1671)


def the_higher_priority_starts_first() -> None:
    gpu = Device()
    first, low, high = gpu.stream(), gpu.stream(priority=0), gpu.stream(priority=-5)
    assert int(ok(cuda.cuStreamGetPriority(high))) == -5
    start = gpu.mark(first)
    gpu.launch(first, 100)
    gpu.launch(low, 1000)
    gpu.launch(high, 1000)
    near(gpu.between(start, gpu.mark(high)), 1100)
    near(gpu.between(start, gpu.mark(low)), 2100)


def a_context_waits_for_the_work_of_a_destroyed_stream() -> None:
    gpu = Device()
    start = gpu.mark(gpu.stream())
    for _ in range(2):
        gone = gpu.stream()
        gpu.launch(gone, 1000)
        ok(cuda.cuStreamDestroy(gone))
    all_of_it = ok(cuda.cuEventCreate(0))
    ok(cuda.cuCtxRecordEvent(ok(cuda.cuCtxGetCurrent()), all_of_it))
    near(gpu.between(start, all_of_it), 2000)
    gone = gpu.stream()
    gpu.launch(gone, 1000)
    ok(cuda.cuStreamDestroy(gone))
    ok(cuda.cuCtxSynchronize())
    near(gpu.between(start, gpu.mark(gpu.stream())), 3000)


def events_order_streams() -> None:
    gpu = Device()
    one, two = gpu.stream(), gpu.stream()
    start = gpu.mark(one)
    gpu.launch(one, 500, sms=1)
    ok(cuda.cuStreamWaitEvent(two, gpu.mark(one), 0))
    gpu.launch(two, 300, sms=1)
    near(gpu.between(start, gpu.mark(two)), 800)


def the_legacy_stream_waits_for_blocking_streams_and_they_for_it() -> None:
    gpu = Device()
    blocking, free = gpu.stream(flags=0), gpu.stream()
    start = gpu.mark(free)
    gpu.launch(blocking, 400, sms=1)
    gpu.launch(free, 50, sms=1)
    gpu.launch(0, 300, sms=1)
    gpu.launch(blocking, 200, sms=1)
    near(gpu.between(start, gpu.mark(free)), 50)
    near(gpu.between(start, gpu.mark(0)), 700 + 200)  # the mark waits for the blocking stream too
    near(gpu.between(start, gpu.mark(blocking)), 900)


def a_per_thread_default_stream_is_not_the_legacy_one() -> None:
    gpu = Device()
    driver = ctypes.CDLL("libcuda.so.1")
    legacy, per_thread = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    assert driver.cuStreamGetId(None, ctypes.byref(legacy)) == 0
    assert driver.cuStreamGetId_ptsz(None, ctypes.byref(per_thread)) == 0
    assert legacy.value != per_thread.value
    assert int(ok(cuda.cuStreamGetId(2))) == per_thread.value
    gpu.launch(2, 100)
    ok(cuda.cuStreamSynchronize(2))


def a_thread_keeps_its_default_stream_of_a_context_while_it_uses_many_others() -> None:
    gpu = Device()
    own = int(ok(cuda.cuStreamGetId(2)))
    contexts = [ok(cuda.cuCtxCreate(None, 0, gpu.device)) for _ in range(40)]
    others = []
    for context in contexts:
        ok(cuda.cuCtxSetCurrent(context))
        others.append(int(ok(cuda.cuStreamGetId(2))))
        ok(cuda.cuCtxSetCurrent(gpu.context))
        assert int(ok(cuda.cuStreamGetId(2))) == own
    assert len({own, *others}) == 41
    for context, other in zip(contexts, others, strict=True):
        ok(cuda.cuCtxSetCurrent(context))
        assert int(ok(cuda.cuStreamGetId(2))) == other


def each_thread_has_its_own_default_stream() -> None:
    gpu = Device()

    def default_stream(_: int) -> int:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        return int(ok(cuda.cuStreamGetId(2)))

    mine = default_stream(0)
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        theirs = list(other.map(default_stream, range(2)))
    assert theirs[0] == theirs[1] != mine == default_stream(0)


def queries_return_not_ready_until_the_work_is_done() -> None:
    gpu = Device()
    stream = gpu.stream()
    gpu.launch(stream, 1000)
    event = gpu.mark(stream)
    fails(cuda.cuEventQuery(event), "NOT_READY")
    fails(cuda.cuStreamQuery(stream), "NOT_READY")
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuEventQuery(event))
    ok(cuda.cuStreamQuery(stream))


def an_event_never_recorded_is_complete_and_has_no_time() -> None:
    gpu = Device()
    event, silent = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(2))
    ok(cuda.cuEventQuery(event))
    ok(cuda.cuEventSynchronize(event))
    fails(cuda.cuEventElapsedTime(event, event), "INVALID_HANDLE")
    ok(cuda.cuEventRecord(silent, gpu.stream()))
    fails(cuda.cuEventElapsedTime(silent, silent), "INVALID_HANDLE")
    ok(cuda.cuEventDestroy(event))
    fails(cuda.cuEventQuery(event), "INVALID_HANDLE")


def a_full_queue_makes_the_launch_wait() -> None:
    gpu = Device()
    stream = gpu.stream()
    start = gpu.mark(stream)
    for _ in range(3000):
        gpu.launch(stream, 10, sms=1)
    near(gpu.between(start, gpu.mark(stream)), 30000)


def a_destroyed_stream_finishes_its_work() -> None:
    gpu = Device()
    stream = gpu.stream()
    start = gpu.mark(stream)
    gpu.launch(stream, 200)
    end = gpu.mark(stream)
    ok(cuda.cuStreamDestroy(stream))
    near(gpu.between(start, end), 200)
    fails(cuda.cuStreamSynchronize(stream), "INVALID_HANDLE")


def a_context_event_waits_for_all_streams() -> None:
    gpu = Device()
    one, two, three = gpu.stream(), gpu.stream(flags=0), gpu.stream()
    start = gpu.mark(three)
    gpu.launch(one, 400, sms=1)
    gpu.launch(two, 600, sms=1)
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuCtxRecordEvent(gpu.context, event))
    ok(cuda.cuCtxWaitEvent(gpu.context, event))
    gpu.launch(three, 100, sms=1)
    near(gpu.between(start, event), 600)
    near(gpu.between(start, gpu.mark(three)), 700)


def two_devices_run_side_by_side() -> None:
    one, two = Device(0), Device(1)
    near_stream = two.stream()
    begin = two.mark(near_stream)
    two.launch(near_stream, 1000)
    end = two.mark(near_stream)
    ok(cuda.cuCtxSetCurrent(one.context))
    far_stream = one.stream()
    one.launch(far_stream, 1000)
    ok(cuda.cuStreamWaitEvent(far_stream, end, 0))
    ok(cuda.cuStreamSynchronize(far_stream))
    near(two.between(begin, end), 1000)
    assert bytes(ok(cuda.cuDeviceGetUuid(0)).bytes) != bytes(ok(cuda.cuDeviceGetUuid(1)).bytes)


def a_faulty_kernel_makes_its_context_unusable_for_ever() -> None:
    gpu = Device()
    image = b"orion-sim 1\nkernel bad duration_us=10 sms=1 error=700\n"
    bad = ok(cuda.cuModuleGetFunction(ok(cuda.cuModuleLoadData(image)), b"bad"))
    stream = gpu.stream()
    ok(cuda.cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
    fails(cuda.cuStreamSynchronize(stream), "ILLEGAL_ADDRESS")
    fails(cuda.cuMemAlloc(4096), "ILLEGAL_ADDRESS")
    fails(gpu.try_launch(stream, 1), "ILLEGAL_ADDRESS")
    ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
    Device().launch(0, 10)


def an_invalid_launch_is_refused() -> None:
    gpu = Device()
    stream = gpu.stream()
    fails(cuda.cuLaunchKernel(gpu.tiny, 0, 1, 1, 1, 1, 1, 0, stream, 0, 0), "INVALID_VALUE")
    fails(cuda.cuLaunchKernel(gpu.tiny, 1, 1, 1, 1025, 1, 1, 0, stream, 0, 0), "INVALID_VALUE")
    fails(cuda.cuLaunchKernel(gpu.gemm, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0), "INVALID_VALUE")
    fails(cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0), "INVALID_HANDLE")
    fails(cuda.cuModuleLoadData(b".version 8.0\n.target sm_90\n"), "INVALID_IMAGE")
    fails(cuda.cuModuleLoadData(b"orion-sim 1\nkernel a duration_us=@0 params=\n"), "INVALID_IMAGE")
    fails(cuda.cuModuleGetFunction(gpu.module, b"nobody"), "NOT_FOUND")


if __name__ == "__main__":
    main(globals())
