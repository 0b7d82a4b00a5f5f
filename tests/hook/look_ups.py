"""A stub of the driver whose functions do nothing, made from cuda.h, and the programs that look its functions up.

The hook and the programs are compiled with and without optimisation. The simulated driver has tests of its own.
"""

import fcntl
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

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


def compile_hooks(folder: Path) -> dict[str, Path]:
    """Compile the hook at each optimisation level, unless another process has done so for this folder."""
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


def compile_programs(folder: Path, hooks: dict[str, Path]) -> Programs:
    """Compile what looks functions up, and what it is linked with."""
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
