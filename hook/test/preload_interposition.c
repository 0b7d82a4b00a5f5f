/* A second preload library beside the hook, like a profiler. It wraps getpid and, if WRAPS_DLSYM is defined, dlsym. It
 * looks up the next definition of a function by RTLD_NEXT. It is also linked with the driver: tests open it by
 * RTLD_DEEPBIND or dlmopen, and look whether it then calls the driver or the hook.
 *
 * With WRAPS_DLOPEN it wraps dlopen; with BY_HANDLE, too, it finds the next one in the C library's handle. With
 * TEXT_RELOCATION it has an address in a page that stays read-only. */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#if defined(__x86_64__) /* the oldest version of dlsym on this architecture; every glibc has it */
#define DLSYM_VERSION "GLIBC_2.2.5"
#else
#define DLSYM_VERSION "GLIBC_2.17"
#endif

typedef void *look_up(void *, const char *);
unsigned long preload_look_ups;

static look_up *next_dlsym(void)
{
    static look_up *next;
    if (next == NULL) next = (look_up *)dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
    return next;
}

#ifdef WRAPS_DLSYM
void *dlsym(void *handle, const char *name)
{
    preload_look_ups++;
    return next_dlsym()(handle, name);
}
#endif

#ifdef WRAPS_DLOPEN
#ifdef BY_HANDLE
#define NEXT dlopen_by_next("libc.so.6", RTLD_LAZY)
#else
#define NEXT RTLD_NEXT
#endif
unsigned long preload_opens;

static void *dlopen_by_next(const char *path, int mode)
{
    return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(path, mode);
}

void *dlopen(const char *path, int mode)
{
    static void *(*next)(const char *, int);
    if (next == NULL) next = (void *(*)(const char *, int))dlsym(NEXT, "dlopen");
    preload_opens++;
    return (next != NULL ? next : dlopen_by_next)(path, mode);
}
#endif

#ifdef TEXT_RELOCATION
__asm__(".section .rodata\n.balign 8\n.quad dlsym\n.text");
#endif

/* Both return the next definition after this library's own. The first function calls the next dlsym after this library.
 * The second calls dlsym as a program does, so the call reaches the first definition in the preload order. */
void *preload_next(const char *name) { return next_dlsym()(RTLD_NEXT, name); }
void *preload_next_by_dlsym(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    return found;
}

void *preload_default(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found;
}

pid_t getpid(void)
{
    pid_t (*next)(void) = (pid_t (*)(void))preload_next("getpid");
    return next() + 1000000000;
}

void *preload_linked(void) { return (void *)cuLaunchKernel; }

/* It takes no address of this function, so a lazy library binds it at the first call. The test's emulation answers 42. */
void *preload_called(void) { return (int)cuCtxSynchronize() == 42 ? (void *)preload_called : NULL; }

/* As Taichi's module looks up the driver. */
void *preload_by_driver(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    return driver == NULL ? NULL : dlsym(driver, name);
}

void *preload_dlopen(void) { return (void *)dlopen; }
void *preload_getpid(void) { return (void *)getpid; }
void *preload_ioctl(void) { return (void *)ioctl; }

/* The program chooses another function than the one that the dynamic linker has put here. */
void *preload_own(void *handle, const char *name) { return (void)handle, (void)name, NULL; }
look_up *preload_variable = dlsym;
__attribute__((constructor)) static void choose(void) { preload_variable = preload_own; }
void *preload_chosen(void) { return (void *)preload_variable; }
