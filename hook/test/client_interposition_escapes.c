/* Ways around a preload, what a second preload finds, and what a library finds that was opened with the driver in its own
 * scope. Prints WAY, object, symbol, separated by tabs. Usage: client_interposition_escapes
 * "deepbind now"|"deepbind lazy"|"deepbind beside"|namespace|table LIBRARY, or: preload, or: scope LIBRARY NAME
 * [OPENED BEFORE]
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

static void say_returned(const char *way, void *library, const char *function)
{
    say(way, ((void *(*)(void))dlsym(library, function))());
}

static void say_opens(void)
{
    unsigned long *opens = dlsym(RTLD_DEFAULT, "preload_opens");
    printf("opens\t%s\t-\n", opens != NULL && *opens > 0 ? "seen" : "none");
}

/* What a library that binds deeply calls. */
static void deepbind(const char *path, int mode)
{
    void *library = dlopen(path, mode);
    const char *error = dlerror();
    printf("error\t%s\t-\n", error != NULL ? error : "none");
    if (library == NULL) return;
    void *(*look_up)(const char *) = (void *(*)(const char *))dlsym(library, "preload_by_driver");
    say("linked", linked(library));
    say("looked up", look_up("cuLaunchKernel"));
    say_returned("called", library, "preload_called");
    say_returned("dlopen", library, "preload_dlopen");
    say_returned("ioctl", library, "preload_ioctl");
    say_returned("chosen", library, "preload_chosen");
    say_returned("getpid", library, "preload_getpid");
    say_opens();
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
    say_opens();
    say("dlopen of the C library", dlsym(dlopen("libc.so.6", RTLD_LAZY), "dlopen"));
}

static void linked_ways(const char *way, const char *path)
{
    if (strcmp(way, "deepbind now") == 0) deepbind(path, RTLD_NOW | RTLD_DEEPBIND);
    if (strcmp(way, "deepbind lazy") == 0) deepbind(path, RTLD_LAZY | RTLD_DEEPBIND);
    if (strcmp(way, "deepbind beside") == 0) {
        if (dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW) == NULL) return;
        deepbind(path, RTLD_NOW | RTLD_DEEPBIND);
    }
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
