"""Every way in which a program reaches a driver function leads to the hook, and other look-ups do not change.

The driver is a stub (look_ups.py). Libraries that bind deeply have a file of their own: test_deep_binding.py.
"""

from pathlib import Path

import pytest

from tests.hook.look_ups import CUDA, HOOK, LEVELS, NVML_FUNCTION, Programs, Rows, compile_c


@pytest.fixture(scope="session", params=[f"hook{hook} client{client}" for hook in LEVELS for client in LEVELS])
def rows(programs: Programs, request: pytest.FixtureRequest) -> Rows:
    hook, client = (word[-3:] for word in request.param.split())
    return programs.run(programs.client[client], preload=str(programs.hook[hook]))


@pytest.mark.parametrize(
    ("way", "symbol"),
    [
        ("linked", "cuLaunchKernel"),
        ("constructor", "cuLaunchKernel"),
        ("handle", "cuLaunchKernel"),
        ("default", "cuLaunchKernel"),
        ("next", "cuLaunchKernel"),
        ("program", "cuLaunchKernel"),
        ("thread", "cuLaunchKernel"),
        ("handle per thread", "cuLaunchKernel_ptsz"),
        ("handle get", "cuGetProcAddress_v2"),
        ("look-up of dlsym", "dlsym"),
        ("look-up of dlvsym", "dlvsym"),
        ("versioned look-up of dlsym", "dlsym"),
        ("handle by the looked-up", "cuLaunchKernel"),
        ("procedure v1", "cuLaunchKernel"),
        ("procedure", "cuLaunchKernel"),
        ("procedure legacy", "cuLaunchKernel"),
        ("procedure per thread", "cuLaunchKernel_ptsz"),
        ("procedure old", "cuMemcpyHtoD"),
        ("procedure newer", "cuMemcpyHtoD_v2"),
        ("procedure newer per thread", "cuMemcpyHtoD_v2_ptds"),
        ("procedure itself", "cuGetProcAddress_v2"),
        ("closed", "cuLaunchKernel"),
    ],
)
def test_leads_to_the_hook(rows: Rows, way: str, symbol: str) -> None:
    assert rows[way] == ("liborion_hook.so", symbol)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("handle passed", ("libcuda.so.1", "cuDeviceGetCount")),
        ("handle 32 bit", ("libcuda.so.1", "cuMemAlloc")),
        ("procedure passed", ("libcuda.so.1", "cuDeviceGetCount")),
        ("procedure unknown version", ("libcuda.so.1", "cuLaunchKernel_future")),
        ("procedure missing", ("none", "NULL")),
        ("procedure missing status", ("500", "1")),
        ("procedure status", ("0", "0")),
        ("versioned missing", ("none", "NULL")),
        ("error of a found one", ("found", "no error")),
        ("call", ("0", "-")),
        ("launches", ("1", "-")),
    ],
)
def test_does_not_change(rows: Rows, way: str, expected: tuple[str, str]) -> None:
    assert rows[way] == expected


def test_other_functions_come_from_the_c_library(rows: Rows) -> None:
    assert rows["other function"][0].startswith("libc.so")
    assert rows["other function versioned"][0].startswith("libc.so")


def test_without_the_hook_every_look_up_has_the_same_errors(programs: Programs, rows: Rows) -> None:
    plain = programs.run(programs.client["-O2"], preload="")
    assert plain.keys() == rows.keys()
    assert plain["handle"][0] == "libcuda.so.1"
    for way in ("error of a missing one", "error of a found one", "other function", "procedure missing status"):
        assert plain[way] == rows[way]


def test_a_program_that_opens_the_driver_itself(programs: Programs) -> None:
    """Such a driver is not in the global scope. The hook does not see the caller's own scope, so it finds the driver
    there, too.
    """
    preload = str(programs.hook["-O2"])
    rows, plain = (programs.run(programs.unlinked, preload=p) for p in (preload, ""))
    for way in ("handle", "procedure", "constructor", "default", "next"):
        assert rows[way] == ("liborion_hook.so", "cuLaunchKernel")
    assert rows["program"] == plain["program"] == ("none", "NULL")


@pytest.mark.parametrize("before", [False, True], ids=["opened", "opened-before"])
@pytest.mark.parametrize("name", ["cuLaunchKernel", NVML_FUNCTION])
def test_a_library_with_the_driver_in_its_own_scope(programs: Programs, name: str, before: bool) -> None:
    """As an extension of Python that is linked with the driver. The driver may be loaded before it, by another one."""
    owner = {"cuLaunchKernel": "libcuda.so.1", NVML_FUNCTION: "libnvidia-ml.so.1"}[name]
    arguments: list[str | Path] = ["scope", programs.second, name, *([owner] if before else [])]
    rows, plain = (
        programs.run(programs.unlinked_escapes, *arguments, preload=p) for p in (str(programs.hook["-O2"]), "")
    )
    assert plain["default"] == plain["next"] == (owner, name)
    assert rows["default"] == rows["next"] == ("liborion_hook.so", name)
    assert rows["error"] == plain["error"] == ("none", "-")


def test_without_a_driver_nothing_is_found(programs: Programs) -> None:
    rows = programs.run(programs.unlinked, preload=str(programs.hook["-O2"]), driver=False)
    assert set(rows.values()) == {("none", "NULL")}


@pytest.mark.parametrize("wraps", [False, True], ids=["next", "wraps-dlsym"])
def test_a_second_preload_behind_the_hook(programs: Programs, wraps: bool) -> None:
    second = programs.second_with_dlsym if wraps else programs.second
    rows = programs.run(programs.escapes, "preload", preload=f"{programs.hook['-O2']}:{second}")
    assert rows["next puts"][0].startswith("libc.so")
    assert rows["next getpid"][0].startswith("libc.so")
    assert rows["getpid"][0] == "wrapped"
    assert rows["next cuDeviceGetCount"][0] == "libcuda.so.1"
    assert rows["next cuLaunchKernel"] == rows["next cuLaunchKernel by dlsym"] == ("liborion_hook.so", "cuLaunchKernel")
    assert rows["handle"][0] == rows["linked"][0] == "liborion_hook.so"
    assert rows["dlopen of the C library"] == ("liborion_hook.so", "dlopen")


@pytest.mark.parametrize("wraps", [False, True], ids=["next", "wraps-dlsym"])
def test_a_second_preload_ahead_of_the_hook(programs: Programs, wraps: bool) -> None:
    second = programs.second_with_dlsym if wraps else programs.second
    rows = programs.run(programs.escapes, "preload", preload=f"{second}:{programs.hook['-O2']}")
    assert rows["next puts"][0].startswith("libc.so")
    assert rows["getpid"][0] == "wrapped"
    assert rows["next cuLaunchKernel"] == ("liborion_hook.so", "cuLaunchKernel")
    assert rows["handle"] == rows["linked"] == ("liborion_hook.so", "cuLaunchKernel")
    assert (rows["look-ups"][0] == "seen") == wraps


@pytest.mark.parametrize("runtime", ["static", "shared"])
@pytest.mark.parametrize("sanitizer", ["address", "thread", "undefined"])
def test_a_program_under_a_sanitizer(programs: Programs, sanitizer: str, runtime: str) -> None:
    """The sanitizer's runtime calls dlsym for the functions that it intercepts before it is ready to run.

    A shared runtime of the address sanitizer, gcc's default, ends a program in which another library comes first.
    """
    source = HOOK / "test" / "client_interposition.c"
    static = {"address": "-static-libasan", "thread": "-static-libtsan", "undefined": "-static-libubsan"}[sanitizer]
    program = programs.folder / f"{sanitizer}-{runtime}"
    flags = [f"-fsanitize={sanitizer}", *([static] if runtime == "static" else [])]
    compile_c(program, *flags, source, programs.folder / "libcuda.so.1")
    # setarch switches off randomised addresses: the thread sanitizer's shadow memory conflicts with some of them.
    rows = programs.run(Path("/usr/bin/setarch"), "-R", program, preload=str(programs.hook["-O2"]))
    assert rows["linked"] == rows["handle"] == rows["procedure"] == ("liborion_hook.so", "cuLaunchKernel")


def test_a_separate_namespace_is_harmless(programs: Programs) -> None:
    """A preload cannot reach a library in a separate namespace. Such a library works as it does without the hook."""
    rows = programs.run(programs.escapes, "namespace", programs.second, preload=str(programs.hook["-O2"]))
    assert rows["namespace"] == ("libcuda.so.1", "cuLaunchKernel")


def test_export_tables_are_the_drivers_own(programs: Programs) -> None:
    assert programs.run(programs.escapes, "table", preload=str(programs.hook["-O2"]))["table"][0] == "500"


def test_a_static_program_runs_as_without(programs: Programs) -> None:
    program = compile_c(programs.folder / "static", "-static", programs.folder / "static.c")
    assert programs.run(program, preload=str(programs.hook["-O2"]))["static"][0] == "fine"


def test_the_dynamic_runtime_asks_the_hook(programs: Programs) -> None:
    """NVIDIA's own libcudart, from PyPI. The stub has no export tables, so the runtime stops after its look-ups."""
    folder = CUDA.parent / "lib"
    (programs.folder / "runtime.c").write_text(RUNTIME_PROGRAM)
    libraries: list[str | Path] = [folder / "libcudart.so.13", f"-Wl,-rpath,{folder}"]
    program = compile_c(programs.folder / "runtime", programs.folder / "runtime.c", *libraries)
    rows = programs.run(program, preload=str(programs.hook["-O2"]))
    look_ups, by_hook = rows["look-ups"]
    assert int(look_ups) > 200
    assert by_hook == look_ups


RUNTIME_PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int cudaFree(void *);
int main(void)
{
    cudaFree(0);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned long *all = dlsym(driver, "stub_look_ups"), *by_hook = dlsym(driver, "stub_look_ups_by_hook");
    printf("look-ups\\t%lu\\t%lu\\n", *all, *by_hook);
    return 0;
}
"""
