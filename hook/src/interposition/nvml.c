/* The functions that a process calls instead of NVML's: those that say how much memory a GPU has, and which processes
 * use it. Programs reach them as they reach the driver's (intercept.c, lookup.c). hook/declarations/nvml.txt lists the
 * functions. They are eleven of two shapes, so two macros write them, and no prototypes are read from a header of NVIDIA. */
#include <dlfcn.h>
#include <stdatomic.h>

#include "interposition/intercept.h"
#include "interposition/resolve.h"
#include "nvml/room.h"

#define MEMORY(name, type, show) ROW_##name,
#define PROCESSES(name, type) ROW_##name,
enum {
#include "generated/nvml.inc"
    ROWS
};
#undef MEMORY
#undef PROCESSES

static void *real[ROWS];
static int (*_Atomic get_uuid)(orion_nvml_device, char *, unsigned);
static atomic_bool resolved;

/* Never unloads NVML, as resolve.c never unloads the driver. */
static bool resolve(int mode)
{
    if (atomic_load_explicit(&resolved, memory_order_acquire)) return true;
    void *(*find)(void *, const char *) = orion_real_dlsym();
    void *library = find == NULL ? NULL : dlopen(ORION_NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE | mode);
    if (library == NULL) return false;
    atomic_store(&get_uuid, (int (*)(orion_nvml_device, char *, unsigned))find(library, "nvmlDeviceGetUUID"));
    for (size_t row = 0; row < ROWS; row++)
        __atomic_store_n(&real[row], find(library, orion_nvml.functions[row].name), __ATOMIC_RELEASE);
    atomic_store_explicit(&resolved, true, memory_order_release);
    return true;
}
static bool resolve_if_loaded(void) { return resolve(RTLD_NOLOAD); }

static void *real_of(size_t row)
{
    void *found = __atomic_load_n(&real[row], __ATOMIC_ACQUIRE);
    if (found != NULL || (!resolve(RTLD_NOLOAD) && !resolve(0))) return found;
    return __atomic_load_n(&real[row], __ATOMIC_ACQUIRE);
}

static bool finds_room(orion_nvml_device device, struct orion_room *room)
{
    char uuid[ORION_NVML_UUID_MAX];
    int (*get)(orion_nvml_device, char *, unsigned) = atomic_load(&get_uuid);
    return get != NULL && get(device, uuid, sizeof uuid) == ORION_NVML_SUCCESS && orion_room_of(uuid, room);
}

#define INTERPOSED(name, parameters) \
    static int wrapped_##name parameters; \
    extern __typeof__(wrapped_##name) name __attribute__((alias("wrapped_" #name), visibility("default"))); \
    static int wrapped_##name parameters

#define MEMORY(name, type, show) \
    INTERPOSED(name, (orion_nvml_device device, type * memory)) \
    { \
        int (*call)(orion_nvml_device, type *) = (int (*)(orion_nvml_device, type *))real_of(ROW_##name); \
        struct orion_room room; \
        if (call == NULL) return ORION_NVML_FUNCTION_NOT_FOUND; \
        int result = call(device, memory); \
        if (result == ORION_NVML_SUCCESS && finds_room(device, &room)) show(&room, memory); \
        return result; \
    }
#define PROCESSES(name, type) \
    INTERPOSED(name, (orion_nvml_device device, unsigned *count, type *entries)) \
    { \
        int (*call)(orion_nvml_device, unsigned *, type *) = (int (*)(orion_nvml_device, unsigned *, type *))real_of(ROW_##name); \
        struct orion_room room; \
        if (call == NULL) return ORION_NVML_FUNCTION_NOT_FOUND; \
        int result = call(device, count, entries); \
        if (result == ORION_NVML_SUCCESS && *count != 0 && entries != NULL && finds_room(device, &room)) \
            *count = orion_room_show_processes(entries, *count, sizeof *entries); \
        return result; \
    }
#include "generated/nvml.inc"
#undef MEMORY
#undef PROCESSES

#define MEMORY(name, type, show) {#name, (void *)wrapped_##name, false},
#define PROCESSES(name, type) {#name, (void *)wrapped_##name, false},
static const struct orion_function functions[] = {
#include "generated/nvml.inc"
};
const struct orion_functions orion_nvml = {functions, ROWS, real, resolve_if_loaded};
