"""How a program finds the driver's functions, and which errors it gets where it may not call them."""

import ctypes
import os

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, fails, main, ok

FLAGS = {"": 1, "_ptsz": 2, "_ptds": 2}
VERSIONS = (
    2000,
    2020,
    3000,
    3020,
    4000,
    4010,
    5050,
    6050,
    7000,
    8000,
    9020,
    10000,
    10010,
    11000,
    11030,
    11040,
    11070,
    12000,
    12020,
    12030,
    12050,
    12080,
    13000,
)


def look_up(driver: ctypes.CDLL, name: str, version: int, flags: int) -> tuple[int, int, int]:
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    query = driver.cuGetProcAddress_v2
    answer = query(name.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(flags), ctypes.byref(status))
    return answer, pointer.value or 0, status.value


def address(driver: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(getattr(driver, symbol), ctypes.c_void_p).value or 0


def pointers_are_those_of_the_exported_symbols() -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    for symbol, name, version, flags in (
        ("cuMemAlloc", "cuMemAlloc", 2000, 0),
        ("cuMemAlloc_v2", "cuMemAlloc", 3020, 0),
        ("cuMemAlloc_v2", "cuMemAlloc", 13050, 2),
        ("cuLaunchKernel", "cuLaunchKernel", 13000, 1),
        ("cuLaunchKernel_ptsz", "cuLaunchKernel", 13000, 2),
        ("cuLaunchKernel", "cuLaunchKernel", 6000, 2),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD", 12000, 2),
        ("cuCtxCreate_v3", "cuCtxCreate", 12000, 0),
        ("cuCtxCreate_v4", "cuCtxCreate", 12050, 0),
        ("cuEventElapsedTime_v2", "cuEventElapsedTime", 12080, 0),
        ("cuGetProcAddress", "cuGetProcAddress", 11030, 0),
        ("cuGetProcAddress_v2", "cuGetProcAddress", 12000, 0),
        ("cuGraphInstantiateWithFlags", "cuGraphInstantiate", 12000, 0),
        ("cuStreamGetCaptureInfo_v3_ptsz", "cuStreamGetCaptureInfo", 12030, 2),
    ):
        assert look_up(driver, name, version, flags) == (0, address(driver, symbol), 0), symbol
    assert look_up(driver, "cuCtxGetId", 11000, 0) == (0, 0, 2)
    assert look_up(driver, "cuNobody", 13000, 0) == (0, 0, 1)
    assert look_up(driver, "cuMemAlloc_v2", 13000, 0) == (0, 0, 1)
    assert look_up(driver, "cuMemAlloc", 13000, 3)[0] == 1


def every_symbol_can_be_reached_by_some_version() -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    header = os.environ["ENTRIES"]
    reached = 0
    for line in header.split():
        name, symbol = line.split("=")
        suffix = next((end for end in ("_ptsz", "_ptds") if symbol.endswith(end)), "")
        found = {look_up(driver, name, version, FLAGS[suffix])[1] for version in (*VERSIONS, *range(11000, 13001, 10))}
        assert address(driver, symbol) in found, symbol
        reached += 1
    assert reached > 600


def functions_that_are_not_modelled_return_an_error() -> None:
    Device()
    fails(cuda.cuGraphDebugDotPrint(ok(cuda.cuGraphCreate(0)), b"/tmp/x", 0), "NOT_SUPPORTED")
    driver, table = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(1)
    assert driver.cuGetExportTable(ctypes.byref(table), bytes(16)) == 500
    assert table.value is None
    assert ok(cuda.cuGetErrorName(cuda.CUresult.CUDA_ERROR_NOT_READY)) == b"CUDA_ERROR_NOT_READY"


def calls_fail_before_init_and_in_a_forked_child() -> None:
    fails(cuda.cuDeviceGetCount(), "NOT_INITIALIZED")
    gpu = Device()
    child = os.fork()
    if child == 0:
        answers = [
            cuda.cuInit(0)[0],
            cuda.cuDeviceGetCount()[0],
            cuda.cuMemAlloc(64)[0],
            cuda.cuCtxSynchronize()[0],
            gpu.try_launch(0, 1)[0],
        ]
        os._exit(len([answer for answer in answers if int(answer) != 3]))
    assert os.waitpid(child, 0)[1] == 0
    ok(cuda.cuCtxSynchronize())


def a_child_forked_before_init_is_a_separate_client() -> None:
    child = os.fork()
    gpu = Device()
    stream = gpu.stream()
    gpu.launch(stream, 100)
    ok(cuda.cuStreamSynchronize(stream))
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def a_host_function_must_not_call_cuda() -> None:
    gpu = Device()
    stream, answers = gpu.stream(), []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: answers.append(int(cuda.cuCtxSynchronize()[0])))
    gpu.launch(stream, 200000)
    ok(cuda.cuLaunchHostFunc(stream, cuda.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 0))
    gpu.launch(stream, 500)
    assert not answers
    ok(cuda.cuStreamSynchronize(stream))
    assert answers == [800]


def a_kernel_of_a_library_can_be_queried() -> None:
    gpu = Device()
    image = b"orion-sim 1\nkernel one duration_us=1.5 sms=2 params=8,4,8\n"
    library = ok(cuda.cuLibraryLoadData(image, None, None, 0, None, None, 0))
    kernel = ok(cuda.cuLibraryGetKernel(library, b"one"))
    function = ok(cuda.cuKernelGetFunction(kernel))
    assert [tuple(ok(cuda.cuFuncGetParamInfo(function, index))) for index in range(3)] == [(0, 8), (8, 4), (16, 8)]
    fails(cuda.cuKernelGetParamInfo(kernel, 3), "INVALID_VALUE")
    most = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert ok(cuda.cuFuncGetAttribute(most, function)) == 1024
    assert ok(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 1024, 0)) == 2
    assert ok(cuda.cuFuncGetName(function)) == b"one"
    assert ok(cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device))
    ok(cuda.cuLibraryUnload(library))


if __name__ == "__main__":
    main(globals())
