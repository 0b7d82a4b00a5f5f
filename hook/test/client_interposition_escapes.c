/* Ways around a preload, what a second preload finds, and what a library finds that was opened with the driver in its own
 * scope. Prints WAY, object, symbol, separated by tabs. Usage: client_interposition_escapes
 * "deepbind now"|"deepbind lazy"|namespace|table LIBRARY, or: preload, or: scope LIBRARY NAME [OPENED BEFORE]
 *
 * With -DUNLINKED the program is not linked with the driver, and only `scope` works. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

static void say(const char *way, void *address)
{
    Dl_info info;
    if (address == NULL || !dladdr(address, &info)) printf("%s\tnone\tNULL\n", way);
    else printf("%s\t%s\t%s\n", way, strrchr(info.dli_fname, '/') + 1, info.dli_sname != NULL ? info.dli_sname : "?");
}

/* The library's look-ups of NAME. `error` is that of the last of them. */
static void scope(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *(*by_default)(const char *) = (void *(*)(const char *))dlsym(library, "preload_default");
    void *(*next)(const char *) = (void *(*)(const char *))dlsym(library, "preload_next");
    say("default", by_default(name));
    say("next", next(name));
    const char *error = dlerror();
    printf("error\t%s\t-\n", error != NULL ? error : "none");
}

#ifndef UNLINKED
static void *linked(void *library)
{
    void *(*function)(void) = library == NULL ? NULL : (void *(*)(void))dlsym(library, "preload_linked");
    return function == NULL ? NULL : function();
}

/* What a library that binds deeply calls. */
static void deepbind(const char *path, int mode)
{
    void *library = dlopen(path, mode);
    const char *error = library == NULL ? dlerror() : NULL;
    if (library == NULL) printf("error\t%s\t-\n", error != NULL ? error : "none");
    if (library == NULL) return;
    void *(*look_up)(const char *) = (void *(*)(const char *))dlsym(library, "preload_by_driver");
    void *(*its_dlopen)(void) = (void *(*)(void))dlsym(library, "preload_dlopen");
    void *(*its_getpid)(void) = (void *(*)(void))dlsym(library, "preload_getpid");
    say("linked", linked(library));
    say("looked up", look_up("cuLaunchKernel"));
    say("dlopen", its_dlopen());
    say("getpid", its_getpid());
}

static void second_preload(void)
{
    void *(*next)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "preload_next");
    void *(*by_dlsym)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "preload_next_by_dlsym");
    unsigned long *look_ups = dlsym(RTLD_DEFAULT, "preload_look_ups");
    say("next puts", next("puts"));
    say("next getpid", next("getpid"));
    say("next cuLaunchKernel", next("cuLaunchKernel"));
    say("next cuDeviceGetCount", next("cuDeviceGetCount"));
    say("next cuLaunchKernel by dlsym", by_dlsym("cuLaunchKernel"));
    say("handle", dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel"));
    say("linked", (void *)cuLaunchKernel);
    printf("getpid\t%s\t-\n", getpid() > 1000000000 ? "wrapped" : "plain");
    printf("look-ups\t%s\t-\n", *look_ups > 0 ? "seen" : "none");
}

static void linked_ways(const char *way, const char *path)
{
    if (strcmp(way, "deepbind now") == 0) deepbind(path, RTLD_NOW | RTLD_DEEPBIND);
    if (strcmp(way, "deepbind lazy") == 0) deepbind(path, RTLD_LAZY | RTLD_DEEPBIND);
    if (strcmp(way, "namespace") == 0) say(way, linked(dlmopen(LM_ID_NEWLM, path, RTLD_NOW)));
    if (strcmp(way, "table") == 0) {
        const void *table = NULL;
        CUuuid id = {{0}};
        printf("table\t%d\t-\n", (int)cuGetExportTable(&table, &id));
    }
    if (strcmp(way, "preload") == 0) second_preload();
}
#else
static void linked_ways(const char *way, const char *path) { (void)way, (void)path; }
#endif

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    const char *path = count > 2 ? arguments[2] : NULL;
    if (count > 4) dlopen(arguments[4], RTLD_NOW | RTLD_LOCAL);
    if (strcmp(way, "scope") == 0 && count > 3) scope(path, arguments[3]);
    else linked_ways(way, path);
    return 0;
}
