"""Memory of all kinds: the data is real, and the device's account is exact."""

import ctypes

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, fails, main, ok

MIB = 1 << 20


def free_bytes() -> int:
    return int(ok(cuda.cuMemGetInfo())[0])


def copied_bytes_are_read_back_unchanged() -> None:
    Device()
    before = free_bytes()
    size = 3 * MIB
    data = bytes(range(256)) * (size // 256)
    one, two, back = ok(cuda.cuMemAlloc(size)), ok(cuda.cuMemAlloc(size)), bytearray(size)
    assert before - free_bytes() >= 2 * size
    ok(cuda.cuMemcpyHtoD(one, data, size))
    ok(cuda.cuMemcpyDtoD(two, one, size))
    ok(cuda.cuMemsetD8(int(two) + 1, 7, 2))
    ok(cuda.cuMemcpyDtoH(back, two, size))
    assert bytes(back) == data[:1] + b"\x07\x07" + data[3:]
    fails(cuda.cuMemcpyDtoH(back, two, size + 4096), "INVALID_VALUE")
    ok(cuda.cuMemFree(one))
    ok(cuda.cuMemFree(two))
    fails(cuda.cuMemFree(two), "INVALID_VALUE")
    assert free_bytes() == before


def more_than_the_device_has_is_refused() -> None:
    Device()
    before = free_bytes()
    fails(cuda.cuMemAlloc(1 << 40), "OUT_OF_MEMORY")
    most = ok(cuda.cuMemAlloc(before))
    fails(cuda.cuMemAlloc(MIB), "OUT_OF_MEMORY")
    ok(cuda.cuMemFree(most))
    assert free_bytes() == before


def rows_are_set_and_copied() -> None:
    Device()
    pointer, pitch = ok(cuda.cuMemAllocPitch(100, 4, 4))
    assert int(pitch) >= 100
    ok(cuda.cuMemsetD2D8(pointer, pitch, 1, 100, 4))
    ok(cuda.cuMemsetD2D32(int(pointer) + int(pitch), pitch, 0x04030201, 2, 2))
    copy, back = cuda.CUDA_MEMCPY2D(), bytearray(400)
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.srcPitch = pointer, int(pitch)
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.dstHost = ctypes.addressof((ctypes.c_char * 400).from_buffer(back))
    copy.WidthInBytes, copy.Height = 100, 4
    ok(cuda.cuMemcpy2D(copy))
    assert bytes(back[:100]) == b"\x01" * 100
    assert bytes(back[100:110]) == b"\x01\x02\x03\x04\x01\x02\x03\x04\x01\x01"


def pointer_attributes_show_the_kind_of_memory() -> None:
    gpu = Device()
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    pinned = ok(cuda.cuMemHostAlloc(4096, 0))
    device = ok(cuda.cuMemAlloc(4096))
    managed = ok(cuda.cuMemAllocManaged(4096, 1))
    assert int(ok(cuda.cuMemHostGetDevicePointer(pinned, 0))) == int(pinned)
    assert int(ok(cuda.cuPointerGetAttribute(kind, pinned))) == 1
    assert int(ok(cuda.cuPointerGetAttribute(kind, device))) == 2
    is_managed = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert ok(cuda.cuPointerGetAttribute(is_managed, managed))
    assert int(ok(cuda.cuMemGetAddressRange(int(device) + 100))[1]) == 4096
    fails(cuda.cuPointerGetAttribute(kind, 0x1000), "INVALID_VALUE")
    stream = gpu.stream()
    ok(cuda.cuMemPrefetchAsync(managed, 4096, cuda.CUmemLocation(), 0, stream))
    ok(cuda.cuStreamSynchronize(stream))
    for free, pointer in ((cuda.cuMemFreeHost, pinned), (cuda.cuMemFree, device), (cuda.cuMemFree, managed)):
        ok(free(pointer))


def memory_can_be_registered_only_once() -> None:
    Device()
    buffer = (ctypes.c_char * 8192)()
    address = ctypes.addressof(buffer)
    ok(cuda.cuMemHostRegister(address, 8192, 0))
    fails(cuda.cuMemHostRegister(address, 8192, 0), "HOST_MEMORY_ALREADY_REGISTERED")
    fails(cuda.cuMemHostUnregister(address + 4096), "INVALID_VALUE")
    ok(cuda.cuMemHostUnregister(address))
    fails(cuda.cuMemHostUnregister(address), "HOST_MEMORY_NOT_REGISTERED")


def a_pool_keeps_freed_bytes_up_to_its_threshold() -> None:
    gpu = Device()
    stream, before = gpu.stream(), free_bytes()
    pool = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    pointer = ok(cuda.cuMemAllocAsync(4 * MIB, stream))
    ok(cuda.cuMemFreeAsync(pointer, stream))
    assert free_bytes() == before
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(64 * MIB)))
    for _ in range(5):
        pointer = ok(cuda.cuMemAllocAsync(4 * MIB, stream))
        assert before - free_bytes() == 4 * MIB
        ok(cuda.cuMemFreeAsync(pointer, stream))
    assert before - free_bytes() == 4 * MIB
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    assert free_bytes() == before


def physical_memory_can_be_mapped_twice() -> None:
    Device()
    before = free_bytes()
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    size = int(ok(cuda.cuMemGetAllocationGranularity(properties, cuda.CUmemAllocationGranularity_flags(0))))
    handle = ok(cuda.cuMemCreate(size, properties, 0))
    start = ok(cuda.cuMemAddressReserve(2 * size, 0, 0, 0))
    access = cuda.CUmemAccessDesc()
    access.location = properties.location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    for place in range(2):
        ok(cuda.cuMemMap(int(start) + place * size, size, 0, handle, 0))
        ok(cuda.cuMemSetAccess(int(start) + place * size, size, [access], 1))
    ok(cuda.cuMemsetD8(start, 9, size))
    back = bytearray(16)
    ok(cuda.cuMemcpyDtoH(back, int(start) + size, 16))
    assert bytes(back) == b"\x09" * 16
    assert before - free_bytes() == size
    ok(cuda.cuMemRelease(handle))
    ok(cuda.cuMemUnmap(start, 2 * size))
    ok(cuda.cuMemAddressFree(start, 2 * size))
    assert free_bytes() == before


def physical_memory_can_be_created_without_a_context() -> None:
    ok(cuda.cuInit(0))
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    ok(cuda.cuMemRelease(ok(cuda.cuMemCreate(2 * MIB, properties, 0))))
    fails(cuda.cuMemAlloc(4096), "INVALID_CONTEXT")


def streams_write_and_wait_for_words() -> None:
    gpu = Device()
    one, two = gpu.stream(), gpu.stream()
    word = ok(cuda.cuMemHostAlloc(8, 0))
    view = ctypes.c_uint64.from_address(int(word))
    ok(cuda.cuStreamWaitValue64(two, int(word), 5, 0))
    done = gpu.mark(two)
    gpu.launch(one, 200000)
    ok(cuda.cuStreamWriteValue64(one, int(word), 5, 0))
    assert view.value == 0
    fails(cuda.cuEventQuery(done), "NOT_READY")
    ok(cuda.cuEventSynchronize(done))
    assert view.value == 5


def a_destroyed_context_returns_its_memory() -> None:
    gpu = Device()
    before = free_bytes()
    other = ok(cuda.cuCtxCreate(None, 0, gpu.device))
    ok(cuda.cuMemAlloc(8 * MIB))
    assert before - free_bytes() == 8 * MIB
    ok(cuda.cuCtxDestroy(other))
    assert int(ok(cuda.cuCtxGetCurrent())) == int(gpu.context)
    assert free_bytes() == before
    fails(cuda.cuCtxPushCurrent(other), "INVALID_CONTEXT")


if __name__ == "__main__":
    main(globals())
