#include "interposition/resolve.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "generated/driver.h"
#include "interposition/elf_symbols.h"
#include "interposition/intercept.h"

#define DRIVER "libcuda.so.1"

static _Atomic(void *) real_dlsym, real_dlvsym, real_dlopen, next_dlopen, the_driver;
static atomic_bool resolved;

/* Needs no lock: threads that run this at the same time find the same address. */
static void *known_or(_Atomic(void *) *known, void *(*look_up)(const char *), const char *name)
{
    void *found = atomic_load_explicit(known, memory_order_relaxed);
    if (__builtin_expect(found == NULL, 0)) {
        found = look_up(name);
        atomic_store_explicit(known, found, memory_order_relaxed);
    }
    return found;
}

void *(*orion_real_dlsym(void))(void *, const char *)
{
    return (void *(*)(void *, const char *))known_or(&real_dlsym, orion_elf_libc_function, "dlsym");
}

void *(*orion_real_dlvsym(void))(void *, const char *, const char *)
{
    return (void *(*)(void *, const char *, const char *))known_or(&real_dlvsym, orion_elf_libc_function, "dlvsym");
}

void *(*orion_real_dlopen(void))(const char *, int)
{
    return (void *(*)(const char *, int))known_or(&real_dlopen, orion_elf_libc_function, "dlopen");
}

void *(*orion_next_dlopen(void))(const char *, int)
{
    return (void *(*)(const char *, int))known_or(&next_dlopen, orion_elf_replaced_function, "dlopen");
}

static void *find(void *where, const char *name) { return orion_real_dlsym()(where, name); }

/* Never unloads the driver, so its functions remain callable however often the program closes it. Fills the core's
 * table first: a thread that sees a function in orion_real may call the core. */
static bool resolve(int mode)
{
    if (atomic_load_explicit(&resolved, memory_order_acquire)) return true;
    void *driver = orion_real_dlsym() == NULL ? NULL : dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE | mode);
    if (driver == NULL) return false;
    orion_driver_fill(find, driver);
    /* Drivers before 12.8 (the first) and 11.4 (the second) have only the names without _v2, with the same
     * arguments. */
    if (orion_driver.cuEventElapsedTime_v2 == NULL)
        *(void **)&orion_driver.cuEventElapsedTime_v2 = find(driver, "cuEventElapsedTime");
    if (orion_driver.cuDeviceGetUuid_v2 == NULL) *(void **)&orion_driver.cuDeviceGetUuid_v2 = find(driver, "cuDeviceGetUuid");
    for (size_t row = 0; row < orion_cuda.count; row++)
        __atomic_store_n(&orion_real[row], find(driver, orion_cuda.functions[row].name), __ATOMIC_RELEASE);
    atomic_store_explicit(&the_driver, driver, memory_order_relaxed);
    atomic_store_explicit(&resolved, true, memory_order_release);
    return true;
}

bool orion_resolve_if_loaded(void) { return resolve(RTLD_NOLOAD); }

bool orion_resolve_exports(const char *name) { return find(atomic_load_explicit(&the_driver, memory_order_relaxed), name) != NULL; }

void *orion_resolve_row(size_t row)
{
    if (!resolve(RTLD_NOLOAD) && !resolve(0)) return NULL;
    return __atomic_load_n(&orion_real[row], __ATOMIC_ACQUIRE);
}
