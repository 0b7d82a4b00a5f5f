#include "interposition/ioctl.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "interposition/elf_symbols.h"

_Atomic(orion_ioctl *) orion_next_ioctl;

/* Not dlsym: the look-up must neither allocate nor change dlerror's state. */
static orion_ioctl *next_ioctl(void)
{
    orion_ioctl *next = atomic_load_explicit(&orion_next_ioctl, memory_order_relaxed);
    if (__builtin_expect(next != NULL, 1)) return next;
    next = (orion_ioctl *)orion_elf_replaced_function("ioctl");
    atomic_store_explicit(&orion_next_ioctl, next, memory_order_relaxed);
    return next;
}

/* A program may call ioctl in a signal handler, so the look-up is made when the hook is loaded. */
__attribute__((constructor)) static void look_up_early(void) { next_ioctl(); }

/* musl declares `request` as int, so its upper half is not looked at here. */
__attribute__((visibility("default"))) int ioctl(int file, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    orion_ioctl *next = next_ioctl();
    int result = next(file, request, argument);
    if (__builtin_expect(_IOC_TYPE((uint32_t)request) != 'F', 1) || result < 0 || argument == NULL) return result;
    int kept = errno;
    orion_groups_saw(next, file, _IOC_NR((uint32_t)request), argument, _IOC_SIZE((uint32_t)request));
    errno = kept;
    return result;
}
