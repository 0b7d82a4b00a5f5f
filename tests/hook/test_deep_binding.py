"""A library that is opened with RTLD_DEEPBIND binds past every preload: the hook's dlopen binds it to the hook, too."""

import pytest

from tests.hook.look_ups import HOOK, LEVELS, Programs, compile_c


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


VARIABLES = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int (*cuInit)(unsigned);
int (*cuLaunchKernel)(void);
int cuCtxSynchronize(void) { return 42; }
static void say(const char *what, void *address)
{
    Dl_info info;
    if (!dladdr(address, &info)) printf("%s\\tnone\\t-\\n", what);
    else printf("%s\\t%s\\t-\\n", what, strrchr(info.dli_fname, '/') + 1);
}
int start(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    cuInit = (int (*)(unsigned))dlsym(driver, "cuInit");
    cuLaunchKernel = (int (*)(void))dlsym(driver, "cuLaunchKernel");
    printf("called\\t%d\\t%d\\n", cuInit(0), cuLaunchKernel());
    say("variable", (void *)&cuLaunchKernel);
    say("value", (void *)cuLaunchKernel);
    say("function", (void *)cuCtxSynchronize);
    return 0;
}
"""

OPENS = """
#include <dlfcn.h>
int main(int count, char **arguments)
{
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : 0;
    return library ? ((int (*)(void))dlsym(library, "start"))() : 1;
}
"""


@pytest.mark.parametrize("sealed", ["relro,-z,now", "norelro,-z,lazy"])
def test_a_library_with_variables_of_the_names_of_the_driver_s_functions(programs: Programs, sealed: str) -> None:
    """NVIDIA's cuda_drvapi_dynlink.c: without the hook, the driver is not in the scope of all objects."""
    (programs.folder / "variables.c").write_text(VARIABLES)
    (programs.folder / "opens.c").write_text(OPENS)
    program = compile_c(programs.folder / "opens", programs.folder / "opens.c")
    library = compile_c(
        programs.folder / "libvariables.so", "-shared", f"-Wl,-z,{sealed}", programs.folder / "variables.c"
    )
    rows = programs.run(program, library, preload=str(programs.hook["-O2"]))
    assert rows["called"] == ("0", "0")
    assert rows["variable"][0] == "libvariables.so"
    assert rows["value"][0] == "liborion_hook.so"
    assert rows["function"][0] == "liborion_hook.so"  # a function may be what the hook replaces
