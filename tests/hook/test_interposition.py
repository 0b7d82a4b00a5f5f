"""Every way in which a program reaches a driver function leads to the hook, and other look-ups do not change.

The driver is a stub whose functions do nothing, made here from cuda.h. This file tests look-ups; the simulated driver
has its own tests. The hook and the program are compiled with and without optimisation.
"""

import fcntl
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from orion.hook import cuda_header

HOOK = Path(cuda_header.__file__).resolve().parent
CUDA = cuda_header.find().parent
SINCE = {"": 0, "_v2": 3020, "_v3": 8000, "_v4": 12050}
LEVELS = ("-O0", "-O2")
NVML_FUNCTION = "nvmlDeviceGetMemoryInfo"

Rows = dict[str, tuple[str, str]]


def compile_c(output: Path, *arguments: str | Path) -> Path:
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-g", "-Wall", "-Wextra", "-Werror", f"-isystem{CUDA}"]
    flags += ['-DORION_VERSION="0"']
    command = [os.environ.get("CC", "cc"), *flags, *map(str, arguments), "-o", str(output), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output


def stub_driver_source() -> str:
    """A driver that counts launches and answers look-ups. Its cuGetProcAddress respects version and flags."""
    by_hand = ("cuGetProcAddress", "cuGetExportTable", "cuDriverGetVersion")
    functions = [f for f in cuda_header.functions(cuda_header.find()).values() if f.base not in by_hand]
    lines = ["#include <dlfcn.h>", "#include <string.h>", "unsigned long stub_launches;", "volatile int stub_called;"]
    for number, function in enumerate(functions):
        counting = "stub_launches++; " if function.base == "cuLaunchKernel" else ""
        lines.append(f"int {function.name}(void) {{ stub_called = {number}; {counting}return 0; }}")
    lines.append("static const struct { const char *base; int since, per_thread; int (*function)(void); } table[] = {")
    for function in functions:
        version = re.search(r"_v\d", function.name)
        since = SINCE[version[0] if version else ""]
        lines.append(f'{{"{function.base}", {since}, {int(function.per_thread)}, {function.name}}},')
    lines.append("};")
    return "\n".join(lines) + STUB_LOOK_UP


STUB_LOOK_UP = """
unsigned long stub_look_ups, stub_look_ups_by_hook;
int cuLaunchKernel_future(void) { return 0; }
int cuGetExportTable(const void **table, const void *id) { return (void)table, (void)id, 500; }
int cuDriverGetVersion(int *version) { return *version = 13050, 0; }
int cuGetProcAddress_v2(const char *symbol, void **found, int version, unsigned long long flags, int *status)
{
    int best = -1;
    Dl_info caller;
    stub_look_ups++;
    if (!dladdr(__builtin_return_address(0), &caller)) return 999;
    if (strstr(caller.dli_fname, "liborion_hook.so")) stub_look_ups_by_hook++;
    *found = 0;
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].base, symbol) || table[i].since > version) continue;
        if (table[i].per_thread && !(flags & 2)) continue;
        int score = table[i].since * 2 + table[i].per_thread;
        if (score > best) best = score, *found = (void *)table[i].function;
    }
    if (version >= 99000) *found = (void *)cuLaunchKernel_future;
    if (!strcmp(symbol, "cuGetProcAddress")) *found = (void *)cuGetProcAddress_v2;
    if (status) *status = *found ? 0 : 1;
    return *found ? 0 : 500;
}
int cuGetProcAddress(const char *symbol, void **found, int version, unsigned long long flags)
{
    return cuGetProcAddress_v2(symbol, found, version, flags, 0);
}
"""


@dataclass(frozen=True)
class Programs:
    """What the test session compiles once, per optimisation level where it matters."""

    folder: Path
    hook: dict[str, Path]
    client: dict[str, Path]
    unlinked: Path
    escapes: Path
    unlinked_escapes: Path
    second: Path
    second_with_dlsym: Path

    def second_built(self, name: str, *arguments: str | Path, driver: Path | None = None) -> Path:
        """Compile the second library with other arguments; its driver may be another one."""
        source = HOOK / "test" / "preload_interposition.c"
        linked = driver or self.folder / "libcuda.so.1"
        return compile_c(self.folder / name, "-Wl,--no-as-needed", *arguments, source, "-shared", linked)

    def run(self, program: Path, *arguments: str | Path, preload: str, driver: bool = True) -> Rows:
        environment = {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": str(self.folder) if driver else ""}
        environment |= {"ORION_ROOT": str(self.folder / "no-agent"), "ASAN_OPTIONS": "detect_leaks=0"}
        done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        assert done.stderr.count("\n") <= 1, done.stderr
        return {(row := line.split("\t"))[0]: (row[1], row[2]) for line in done.stdout.splitlines()}


@pytest.fixture(scope="session")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The hook at each optimisation level: 30 s of CPU to compile both, so the workers of pytest-xdist share them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has its folder in one that all share
        folder = folder.parent
    source = HOOK / "src"
    sources = sorted(path for path in source.rglob("*.c") if path.parent.name != "baselines")  # as the released library
    flags = [f"-I{source}", f"-I{HOOK / 'include'}", "-fvisibility=hidden", "-ftls-model=initial-exec"]
    exported = f"-Wl,--version-script={source / 'exports.map'},-z,nodelete,-z,now"
    compiled = {level: folder / f"interposition{level}" / "liborion_hook.so" for level in LEVELS}
    with open(folder / "interposition.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for level, library in compiled.items():
            library.parent.mkdir(exist_ok=True)
            if not library.exists():
                compile_c(library, level, "-shared", *flags, *sources, exported)
    return compiled


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, hooks: dict[str, Path]) -> Programs:
    folder = tmp_path_factory.mktemp("interposition")
    (folder / "stub.c").write_text(stub_driver_source())
    driver = compile_c(folder / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.1,-Bsymbolic", folder / "stub.c")
    (folder / "nvml.c").write_text(f"int {NVML_FUNCTION}(void) {{ return 0; }}\n")
    nvml = compile_c(folder / "libnvidia-ml.so.1", "-shared", "-Wl,-soname,libnvidia-ml.so.1", folder / "nvml.c")
    (folder / "static.c").write_text('#include <stdio.h>\nint main(void) { puts("static\\tfine\\t-"); return 0; }\n')
    test = HOOK / "test"
    client, second = test / "client_interposition.c", test / "preload_interposition.c"
    escapes = test / "client_interposition_escapes.c"
    return Programs(
        folder,
        hooks,
        {level: compile_c(folder / f"client{level}", level, client, driver) for level in LEVELS},
        compile_c(folder / "unlinked", "-DUNLINKED", client),
        compile_c(folder / "escapes", "-Wl,--no-as-needed", escapes, driver),
        compile_c(folder / "unlinked_escapes", "-DUNLINKED", escapes),
        compile_c(folder / "libsecond.so", "-Wl,--no-as-needed", second, "-shared", driver, nvml),
        compile_c(folder / "libsecond_dlsym.so", "-DWRAPS_DLSYM", second, "-shared", driver),
    )


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


@pytest.mark.parametrize("sanitizer", ["address", "thread", "undefined"])
def test_a_program_under_a_sanitizer(programs: Programs, sanitizer: str) -> None:
    """The sanitizer's runtime calls dlsym for the functions that it intercepts before it is ready to run."""
    source = HOOK / "test" / "client_interposition.c"
    static = {"address": "-static-libasan", "thread": "-static-libtsan", "undefined": "-static-libubsan"}[sanitizer]
    program = programs.folder / sanitizer
    compile_c(program, f"-fsanitize={sanitizer}", static, source, programs.folder / "libcuda.so.1")
    # setarch switches off randomised addresses: the thread sanitizer's shadow memory conflicts with some of them.
    rows = programs.run(Path("/usr/bin/setarch"), "-R", program, preload=str(programs.hook["-O2"]))
    assert rows["linked"] == rows["handle"] == rows["procedure"] == ("liborion_hook.so", "cuLaunchKernel")


@pytest.mark.parametrize("lazy", ["now", "lazy"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_library_that_binds_deeply_calls_the_hook(programs: Programs, lazy: str, level: str) -> None:
    """Taichi's Python module is opened with RTLD_DEEPBIND."""
    rows = programs.run(programs.escapes, f"deepbind {lazy}", programs.second, preload=str(programs.hook[level]))
    assert rows["linked"] == rows["looked up"] == ("liborion_hook.so", "cuLaunchKernel")
    assert rows["dlopen"] == ("liborion_hook.so", "dlopen")  # so that what it opens deeply calls the hook, too
    assert rows["ioctl"] == ("liborion_hook.so", "ioctl")
    assert rows["error"][0] == "none"  # although the hook has looked for functions that this NVML does not have
    assert rows["chosen"] == ("libsecond.so", "preload_own")  # what the library itself has put there
    assert rows["getpid"] == ("libsecond.so", "getpid")  # other names stay bound as the program wants it


def test_a_library_that_binds_deeply_is_not_found(programs: Programs) -> None:
    preload = str(programs.hook["-O2"])
    assert "cannot open" in programs.run(programs.escapes, "deepbind now", "/nowhere/x.so", preload=preload)["error"][0]


def test_a_library_that_binds_deeply_beside_a_namespace(programs: Programs) -> None:
    rows = programs.run(programs.escapes, "deepbind beside", programs.second, preload=str(programs.hook["-O2"]))
    assert rows["linked"] == rows["looked up"] == ("liborion_hook.so", "cuLaunchKernel")


def test_a_library_that_binds_deeply_with_relocations_in_its_code(programs: Programs) -> None:
    library = programs.second_built("libtext.so", "-DTEXT_RELOCATION", "-Wl,-z,notext")
    rows = programs.run(programs.escapes, "deepbind now", library, preload=str(programs.hook["-O2"]))
    assert rows["linked"] == ("liborion_hook.so", "cuLaunchKernel")


def test_a_library_that_binds_deeply_by_a_path_relative_to_the_caller(programs: Programs) -> None:
    """The dynamic linker puts the caller's folder for $ORIGIN. The hook must not be the caller."""
    rows = programs.run(programs.escapes, "deepbind now", "$ORIGIN/libsecond.so", preload=str(programs.hook["-O2"]))
    assert rows["error"][0] == "none"
    assert rows["looked up"][1] == "cuLaunchKernel"


@pytest.mark.parametrize("lazy", ["now", "lazy"])
def test_a_driver_that_a_library_brings_itself(programs: Programs, lazy: str) -> None:
    """It has chosen RTLD_DEEPBIND to call an emulation of the driver."""
    (programs.folder / "emulated.c").write_text(
        "int cuLaunchKernel(void) { return 42; }\nint cuCtxSynchronize(void) { return 42; }\n"
    )
    emulated = compile_c(programs.folder / "libemulated.so", "-shared", programs.folder / "emulated.c")
    library = programs.second_built("libemulating.so", f"-Wl,-z,{lazy}", driver=emulated)
    rows = programs.run(programs.escapes, f"deepbind {lazy}", library, preload=str(programs.hook["-O2"]))
    assert rows["linked"] == ("libemulated.so", "cuLaunchKernel")
    assert rows["called"] == ("libemulating.so", "preload_called")
    assert rows["looked up"] == ("liborion_hook.so", "cuLaunchKernel")


@pytest.mark.parametrize("by", ["next", "handle"])
def test_a_preload_behind_the_hook_that_wraps_dlopen(programs: Programs, by: str) -> None:
    """A tool that looks at what a program opens. The hook calls it, and it finds the C library's function."""
    defined = ["-DWRAPS_DLOPEN", *(["-DBY_HANDLE"] if by == "handle" else [])]
    preload = f"{programs.hook['-O2']}:{programs.second_built(f'libwraps_{by}.so', *defined)}"
    rows = programs.run(programs.escapes, "preload", preload=preload)
    assert rows["opens"][0] == "seen"
    assert rows["dlopen of the C library"] == ("liborion_hook.so", "dlopen")
    rows = programs.run(programs.escapes, "deepbind now", programs.second, preload=preload)
    assert rows["opens"][0] == "seen"
    assert rows["linked"] == ("liborion_hook.so", "cuLaunchKernel")


def test_a_thread_that_loads_a_library_meanwhile(programs: Programs) -> None:
    """The hook changes no library that the dynamic linker has not yet finished. Each of the two changes its own."""
    source = HOOK / "test" / "deep_race.c"
    program = compile_c(programs.folder / "race", "-rdynamic", source)
    library = compile_c(programs.folder / "librace.so", "-DLIBRARY", "-shared", "-Wl,-z,relro,-z,now", source)
    rows = programs.run(program, programs.second, library, preload=str(programs.hook["-O2"]))
    assert rows["both"] == ("open", "managed")


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
