"""Managed memory that exceeds the GPU: its pages come when a kernel needs them, and leave for others."""

from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, main, ok

GIB = 1 << 30
CARD = 80
FAULT_US = 1e6 / 12
""" In which page faults bring in a GiB. """
COPY_US = GIB / 50_000
""" In which a prefetch does. """


def managed(gib: int) -> Any:
    return ok(cuda.cuMemAllocManaged(gib * GIB, 1))


def free_gib() -> float:
    return float(ok(cuda.cuMemGetInfo())[0]) / GIB


def duration(device: Device, stream: Any) -> float:
    """How long the stream takes for a kernel of 100 us."""
    before = device.mark(stream)
    device.launch(stream, 100)
    return device.between(before, device.mark(stream))


def close(took: float, expected_us: float, within_us: float = 5) -> bool:
    # Each of thousands of pieces takes whole nanoseconds.
    return abs(took - expected_us) < within_us + expected_us * 1e-5


def prefetch(pointer: Any, gib: int, stream: Any, to_gpu: bool = True) -> None:
    kinds = cuda.CUmemLocationType
    place = cuda.CUmemLocation()
    place.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE if to_gpu else kinds.CU_MEM_LOCATION_TYPE_HOST
    ok(cuda.cuMemPrefetchAsync(pointer, gib * GIB, place, 0, stream))


def other_context(device: Device) -> Any:
    return ok(cuda.cuCtxCreate(None, 0, device.device))


def what_fits_costs_nothing() -> None:
    device = Device()
    stream, pointer = device.stream(), managed(60)
    assert free_gib() == CARD - 60
    assert close(duration(device, stream), 100)
    ok(cuda.cuMemFree(pointer))
    assert free_gib() == CARD


def a_kernel_waits_for_what_has_no_room_each_time() -> None:
    device = Device()
    stream, pointer = device.stream(), managed(CARD + 12)
    assert free_gib() == 0
    for _ in range(2):
        assert close(duration(device, stream), 12 * FAULT_US + 100)
    ok(cuda.cuMemFree(pointer))
    assert close(duration(device, stream), 100)
    assert free_gib() == CARD


def pages_of_the_longest_unused_context_leave_first() -> None:
    device = Device()
    stream, mine = device.stream(), managed(40)
    duration(device, stream)
    other = other_context(device)
    theirs = managed(40)
    their_stream = device.stream()
    assert close(duration(device, their_stream), 100)
    third = other_context(device)
    more = managed(30)
    assert free_gib() == 0
    third_stream = device.stream()
    assert close(duration(device, third_stream), 30 * (FAULT_US + COPY_US) + 100)  # in the place of the first one's
    ok(cuda.cuCtxSetCurrent(other))
    assert close(duration(device, their_stream), 100)
    ok(cuda.cuCtxSetCurrent(device.context))
    assert close(duration(device, stream), 30 * (FAULT_US + COPY_US) + 100)
    for context, pointer in ((device.context, mine), (other, theirs), (third, more)):
        ok(cuda.cuCtxSetCurrent(context))
        ok(cuda.cuMemFree(pointer))
    assert free_gib() == CARD


def a_prefetch_moves_pages_at_the_rate_of_copies() -> None:
    device = Device()
    copies, stream, pointer = device.stream(), device.stream(), managed(20)
    prefetch(pointer, 20, copies, to_gpu=False)
    ok(cuda.cuStreamSynchronize(copies))
    assert free_gib() == CARD
    before = device.mark(copies)
    prefetch(pointer, 20, copies)
    took = device.between(before, device.mark(copies))
    assert close(took, 20 * COPY_US), took
    assert free_gib() == CARD - 20
    assert close(duration(device, stream), 100)


def a_kernel_waits_for_a_prefetch_under_way() -> None:
    device = Device()
    copies, stream, pointer = device.stream(), device.stream(), managed(20)
    prefetch(pointer, 20, copies, to_gpu=False)
    ok(cuda.cuStreamSynchronize(copies))
    prefetch(pointer, 20, copies)
    took = duration(device, stream)
    assert close(took, 20 * COPY_US + 100), took


def to_the_host(copies: Any, *held: tuple[Any, int]) -> None:
    for pointer, gib in held:
        prefetch(pointer, gib, copies, to_gpu=False)
    ok(cuda.cuStreamSynchronize(copies))


def a_kernel_waits_for_the_memory_that_its_parameters_name() -> None:
    device = Device()
    stream, copies = device.stream(), device.stream()
    one, other, ordinary = managed(5), managed(7), ok(cuda.cuMemAlloc(GIB))
    to_the_host(copies, (one, 5), (other, 7))

    def took(*addresses: int) -> float:
        before = device.mark(stream)
        device.launch_with(stream, 100, *addresses)
        return device.between(before, device.mark(stream))

    assert close(took(int(ordinary), int(ordinary)), 100)
    assert close(took(int(other) + GIB, 12345), 7 * FAULT_US + 100)
    assert close(took(int(other), int(ordinary)), 100)
    assert close(took(int(one), int(other)), 5 * FAULT_US + 100)
    to_the_host(copies, (one, 5), (other, 7))
    assert close(took(0, 12345), 12 * FAULT_US + 100)  # nobody knows what it touches
    for pointer in (one, other, ordinary):
        ok(cuda.cuMemFree(pointer))
    assert free_gib() == CARD


def a_memset_touches_blocks_of_2_mib() -> None:
    device = Device()
    stream, pointer = device.stream(), managed(2)
    to_the_host(device.stream(), (pointer, 2))
    before = device.mark(stream)
    ok(cuda.cuMemsetD32Async(pointer, 1, 1024, stream))
    assert close(device.between(before, device.mark(stream)), FAULT_US / 512 + 1)
    assert close((CARD - free_gib()) * 512, 1)
    ok(cuda.cuMemFree(pointer))


def of_a_context_what_was_not_touched_for_longest_leaves() -> None:
    device = Device()
    stream, blocks = device.stream(), [managed(20) for _ in range(3)]
    for block in blocks:
        device.launch_with(stream, 100, int(block), 0)
    device.launch_with(stream, 100, int(blocks[0]), 0)
    more = managed(30)  # 10 GiB are on the host
    ok(cuda.cuStreamSynchronize(stream))
    before = device.mark(stream)
    device.launch_with(stream, 100, int(more), 0)
    assert close(device.between(before, device.mark(stream)), 10 * (FAULT_US + COPY_US) + 100)
    before = device.mark(stream)
    for block in (blocks[0], blocks[2]):
        device.launch_with(stream, 100, int(block), 0)
    assert close(device.between(before, device.mark(stream)), 200)
    before = device.mark(stream)
    device.launch_with(stream, 100, int(blocks[1]), 0)
    assert close(device.between(before, device.mark(stream)), 10 * (FAULT_US + COPY_US) + 100)
    for block in (*blocks, more):
        ok(cuda.cuMemFree(block))


def a_kernel_that_has_lost_the_gpu_asks_for_no_pages() -> None:
    device = Device()
    copies, stream, pointer = device.stream(), device.stream(), managed(20)
    prefetch(pointer, 20, copies, to_gpu=False)
    ok(cuda.cuStreamSynchronize(copies))
    other = other_context(device)
    their_stream = device.stream()
    ok(cuda.cuCtxSetCurrent(device.context))
    before = device.mark(stream)
    device.launch(stream, 100)
    after = device.mark(stream)
    ok(cuda.cuCtxSetCurrent(other))
    began = device.mark(their_stream)
    for _ in range(10):
        device.launch(their_stream, 20_000)  # in time slices of 2 ms beside the kernel that waits
    assert 390_000 < device.between(began, device.mark(their_stream)) < 410_000
    assert 2 < CARD - free_gib() < 3  # what comes in half of that time
    ok(cuda.cuCtxSetCurrent(device.context))
    assert close(device.between(before, after), 20 * FAULT_US + 100 + 200_000, 20_000)  # a piece under way comes anyway
    ok(cuda.cuMemFree(pointer))
    ok(cuda.cuCtxDestroy(other))
    ok(cuda.cuCtxSetCurrent(device.context))


def ordinary_memory_drives_pages_out() -> None:
    device = Device()
    stream, pointer = device.stream(), managed(50)
    ordinary = ok(cuda.cuMemAlloc(60 * GIB))
    assert free_gib() == 0
    assert close(duration(device, stream), 30 * FAULT_US + 100)
    ok(cuda.cuMemFree(ordinary))
    assert close(duration(device, stream), 30 * FAULT_US + 100)
    assert close(duration(device, stream), 100)
    ok(cuda.cuMemFree(pointer))


def a_context_that_ends_takes_its_pages_along() -> None:
    device = Device()
    context = other_context(device)
    managed(CARD + 10)
    ok(cuda.cuCtxDestroy(context))
    ok(cuda.cuCtxSetCurrent(device.context))
    assert free_gib() == CARD


if __name__ == "__main__":
    main(globals())
