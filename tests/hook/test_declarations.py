"""The declarations cover cuda.h, and the generated code does what they declare."""

import re
import shutil
from pathlib import Path

import pytest

from orion.errors import Invalid
from orion.hook import cuda_header, declared, generate, wrappers
from orion.hook.cuda_header import Function, Parameter
from orion.hook.declared import Declaration

FUNCTIONS = cuda_header.functions(cuda_header.find())
DECLARATIONS = declared.read()


def declare(line: str, kind: str, folder: Path) -> dict[str, Declaration]:
    for each in declared.CLASSES:
        (folder / f"{each}.txt").write_text(line + "\n" if each == kind else "")
    return declared.read(folder)


def test_the_header_is_read_completely() -> None:
    """Compare with another count: every name in the raw header that a parameter list follows."""
    text = re.sub(r"/\*.*?\*/", "", cuda_header.find().read_text(), flags=re.DOTALL)
    raw = set(re.findall(r"CUresult(?: CUDAAPI)?\s+(cu[A-Z]\w*)\s*\(", text))
    raw -= {"cuGetProcAddress_v2_ptsz"}  # an inline function of the header
    assert len(FUNCTIONS) > 680
    assert {re.sub(r"_v\d+$|(_v\d+)?_pt[sd]\w$", "", name) for name in raw} <= {f.base for f in FUNCTIONS.values()}


def test_every_abi_of_a_function_is_read() -> None:
    names = {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"}
    assert {f.name for f in FUNCTIONS.values() if f.base == "cuMemcpyHtoD"} == names
    assert FUNCTIONS["cuMemcpyHtoD"].parameters[0] == Parameter("CUdeviceptr_v1", "dstDevice")
    assert FUNCTIONS["cuCtxSynchronize"].parameters == ()


def test_declarations_and_header_agree() -> None:
    assert generate.complaints(FUNCTIONS, DECLARATIONS) == []


def test_every_function_of_nvml_that_shows_memory_or_processes_is_declared() -> None:
    """Compare with NVIDIA's own bindings, which call no function without a version if there is one with."""
    import pynvml

    pattern = re.compile(r'"(nvmlDeviceGet(?:MemoryInfo|\w*RunningProcesses)(?:_v\d+)?)"')
    known = set(pattern.findall(Path(pynvml.__file__).read_text()))
    assert len(known) == 8
    assert known <= set(declared.nvml())


def test_a_function_without_a_line_is_refused() -> None:
    functions = FUNCTIONS | {"cuNew_v2": Function("cuNew_v2", ())}
    (complaint,) = generate.complaints(functions, DECLARATIONS)
    assert "cuNew_v2" in complaint
    assert "gate.txt" in complaint


def test_a_line_for_an_unknown_function_is_refused() -> None:
    functions = {name: function for name, function in FUNCTIONS.items() if name != "cuLaunchKernelEx"}
    (complaint,) = generate.complaints(functions, DECLARATIONS)
    assert complaint.startswith("hook/declarations/gate.txt:")
    assert "cuLaunchKernelEx" in complaint


def test_a_name_is_declared_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pass.txt:2: cuInit is already declared in declarations/pass.txt:1"):
        declare("cuInit\ncuInit", "pass", tmp_path)


def test_every_function_with_a_stream_has_a_class() -> None:
    """A new function with a stream probably queues work.

    The pattern lists the functions that queue no work, or whose work the hook counts elsewhere.
    """
    reads_only = re.compile(r"cuStream(Get|Set|Copy|IsCapturing|UpdateCapture)")
    streams = {n for n, f in FUNCTIONS.items() if any(p.type == "CUstream" for p in f.parameters)}
    passed = {name for name in streams if DECLARATIONS[name].kind == "pass"}
    assert all(reads_only.match(name) for name in passed)


@pytest.mark.parametrize("kind", ["gate", "submit", "synchronise", "capture", "memory", "lifetime", "lookup"])
def test_variants_of_a_function_share_its_class(kind: str) -> None:
    """Functions for memory with 32-bit addresses are exceptions, because no 64-bit program uses them."""
    for name, declaration in DECLARATIONS.items():
        if declaration.kind == kind:
            group = [f.name for f in FUNCTIONS.values() if f.base == FUNCTIONS[name].base]
            others = {other for other in group if DECLARATIONS[other].kind != kind}
            narrow = {other for other in others if DECLARATIONS[other].kind == "pass" and other == FUNCTIONS[name].base}
            assert others == (narrow if kind == "memory" else set()), name


def test_the_look_up_table_is_in_the_order_of_strcmp() -> None:
    rows = re.findall(r"^(?:WRAPPED|PASSED)\((\w+),", generate.table_include(FUNCTIONS, DECLARATIONS), re.MULTILINE)
    assert rows == sorted(rows)
    assert len(rows) > 250
    assert {FUNCTIONS[name].base for name in rows} <= set(rows)  # cuGetProcAddress looks up the base names


def test_drift_is_refused_with_the_command_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(generate.GENERATED, tmp_path / "generated")
    monkeypatch.setattr(generate, "GENERATED", folder)
    monkeypatch.setattr(generate, "POLICY_HEADER", Path(shutil.copy(generate.POLICY_HEADER, tmp_path)))
    assert generate.main(["--check"]) == 0
    (folder / "table.inc").write_text("")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == f"hook/src/generated/table.inc is not up to date: run `{generate.WRITE}`\n"
    assert generate.main(["--write"]) == generate.main(["--check"]) == 0


def test_another_header_is_refused_by_its_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = tmp_path / "cuda.h"
    header.write_text("#define CUDA_VERSION 12080\n")
    assert generate.main(["--check", "--header", str(header)]) == 1
    assert "is version 12080" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuLaunchKernel_ptsz", ".stream = {hStream, true}, .identity = "),
        ("cuLaunchKernel_ptsz", ".identity = ORION_IDENTITY_UNREAD, .launch = {.function = f, "),
        ("cuLaunchKernelEx", "if (!config) return real(config, f, kernelParams, extra);"),
        ("cuMemcpyHtoD_v2", ".stream = {NULL, false}, .identity = orion_identity_bytes(ORION_WORK_COPY_IN, ByteCount)"),
        ("cuMemcpyDtoH_v2_ptds", ".of_itself = true, .stream = {NULL, true}}"),
        ("cuMemcpy2D_v2", "if (orion_copy_of_box_proves(pCopy, 1)) orion_proof_end(&proof, result);"),
        ("cuEventRecord", ".event = hEvent, .stream = {hStream, false}"),
        ("cuStreamQuery", ".blocks = false"),
        ("cuStreamEndCapture", "orion_capture_changed(ORION_CAPTURE_ENDED, "),
        ("cuStreamBeginCapture_v2_ptsz", "(ORION_CAPTURE_BEGUN, (struct orion_stream_name){hStream, true}, result);"),
        ("cuMemAlloc_v2", "if (!orion_allocation_may_begin(device, reserved, kind)) return CUDA_ERROR_OUT_OF_MEMORY;"),
        ("cuMemAllocAsync_ptsz", "{.pool = NULL, .stream = {hStream, true}, .bytes = bytesize};"),
        ("cuMemFreeAsync", "orion_operation_begin((struct orion_stream_name){hStream, false});"),
        ("cuMemGetHandleForAddressRange", ", if (answer == CUDA_SUCCESS) orion_memory_shared());"),
        ("cuMemAllocAsync", "result = PRESENT(real(dptr, bytesize, hStream));"),
        ("cuPointerGetAttribute", "&& attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) orion_memory_shared());"),
        (
            "cuPointerGetAttributes",
            "&& orion_memory_asks_for_tokens(attributes, numAttributes)) orion_memory_shared());",
        ),
        ("cuLogicalEndpointExport", ", if (answer == CUDA_SUCCESS) orion_memory_shared());"),
        ("cuLogicalEndpointImport", ", if (answer == CUDA_SUCCESS) orion_memory_shared());"),
        ("cuLogicalEndpointBindMem", ", if (answer == CUDA_SUCCESS) orion_memory_shared());"),
        (
            "cuMemGetMemPool",
            "if (result == CUDA_SUCCESS) orion_memory_placed(location, type);",
        ),
        ("cuLibraryGetManaged", "if (result == CUDA_SUCCESS) orion_memory_managed();"),
        ("cuGraphInstantiateWithFlags", "if (result == CUDA_SUCCESS) orion_graph_copy_made(*phGraphExec, hGraph);"),
        (
            "cuGraphExecMemcpyNodeSetParams",
            "orion_graph_set(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, copyParams);",
        ),
        ("cuGraphExecNodeSetParams", "orion_graph_set_any(hGraphExec, hNode, nodeParams);"),
    ],
)
def test_a_wrapper_does_what_its_line_declares(name: str, expected: str) -> None:
    assert expected in wrappers.wrapper(FUNCTIONS[name], DECLARATIONS[name])


def test_a_line_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    function = FUNCTIONS["cuStreamCopyAttributes"]
    declarations = declare("cuStreamCopyAttributes  copy(1)", "gate", tmp_path)
    with pytest.raises(Invalid, match="has the streams dstStream, srcStream; add stream=NAME"):
        wrappers.wrapper(function, declarations[function.name])
    declarations = declare("cuGraphLaunch  teleport(hGraph)", "gate", tmp_path)
    with pytest.raises(Invalid, match="teleport makes no identity"):
        wrappers.wrapper(FUNCTIONS["cuGraphLaunch"], declarations["cuGraphLaunch"])
