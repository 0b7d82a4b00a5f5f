/* The functions that a process calls instead of the driver's: one for each exported function of the driver, except
 * those of hook/declarations/pass.txt.
 *
 * They are generated from hook/declarations. Each of these functions gets the address of the driver's function,
 * notifies the core of the call, makes the call, and notifies the core of the result. Look-ups by name return the same
 * functions (lookup.c).
 *
 * Each of these functions is static and has an exported alias. So the table contains the hook's own addresses, even if
 * a library that is preloaded before the hook defines a function of the same name. Those for memory begin as patchable.h says. */
#define __CUDA_API_VERSION_INTERNAL /* makes cuda.h declare every ABI variant under the name that the driver exports */
#include "interposition/intercept.h"

#include <cuda.h>
#include <stdint.h>

#include "agent/credit.h"
#include "parking/room.h"
#include "be/connections.h"
#include "be/graph_copies.h"
#include "be/graph_updates.h"
#include "be/quiet.h"
#include "core/core.h"
#include "core/graph_launch.h"
#include "core/lifetimes.h"
#include "generated/driver.h"
#include "interposition/launched.h"
#include "interposition/patchable.h"
#include "interposition/lookup.h"
#include "interposition/resolve.h"
#include "learning/extent.h"
#include "learning/graphs.h"
#include "memory/graph_memory.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "memory/unified.h"
#include "process/absence.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/priorities.h"
#include "threads/redirect.h"

#define INTERPOSED(name, parameters) \
    static CUresult wrapped_##name parameters; \
    extern __typeof__(name) name __attribute__((alias("wrapped_" #name), visibility("default"))); \
    static CUresult wrapped_##name parameters

/* Defines `real`, the driver's function. If there is no driver, or the driver is older than the function, or the process exits while it is
 * away, the call fails. */
#define REAL(name) \
    if (orion_is_gone()) return CUDA_ERROR_DEINITIALIZED; \
    void *address_of_real = __atomic_load_n(&orion_real[ROW_##name], __ATOMIC_ACQUIRE); \
    if (__builtin_expect(address_of_real == NULL, 0)) address_of_real = orion_resolve_row(ROW_##name); \
    if (__builtin_expect(address_of_real == NULL, 0)) return CUDA_ERROR_NOT_FOUND; \
    __typeof__(&name) real = (__typeof__(&name))address_of_real

/* A call of the driver that waits first while the process is away, because the driver does not stop it (process/absence.h). Before the
 * process may leave, `then` follows. A process that exits while it is away never comes back: its handlers get the error that the driver
 * gives behind its own end. */
#define PRESENT_THEN(call, then) \
    __extension__({ \
        struct orion_process *process = orion_process_if_managed(); \
        enum orion_presence presence = orion_present_begin(process); \
        CUresult answer = presence == ORION_ABSENT ? CUDA_ERROR_DEINITIALIZED : call; \
        then; \
        orion_present_end(process, presence); \
        answer; \
    })
#define PRESENT(call) PRESENT_THEN(call, (void)0)

#define WRAPPED(name, per_thread) ROW_##name,
#define PASSED WRAPPED
enum {
#include "generated/table.inc"
    ROWS
};
#undef WRAPPED
#undef PASSED

void *orion_real[ROWS];

#include "generated/wrappers.inc"

INTERPOSED(cuGetProcAddress, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags))
{
    REAL(cuGetProcAddress);
    CUresult result = real(symbol, pfn, cudaVersion, flags);
    if (result == CUDA_SUCCESS && pfn != NULL) *pfn = orion_lookup_procedure(symbol, *pfn, flags);
    return result;
}

INTERPOSED(cuGetProcAddress_v2,
           (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus))
{
    REAL(cuGetProcAddress_v2);
    CUresult result = real(symbol, pfn, cudaVersion, flags, symbolStatus);
    if (result == CUDA_SUCCESS && pfn != NULL) *pfn = orion_lookup_procedure(symbol, *pfn, flags);
    return result;
}

#define WRAPPED(name, per_thread) {#name, (void *)wrapped_##name, per_thread},
#define PASSED(name, per_thread) {#name, NULL, per_thread},
static const struct orion_function functions[] = {
#include "generated/table.inc"
};
const struct orion_functions orion_cuda = {functions, ROWS, orion_real, orion_resolve_if_loaded};

/* Lets users of nm and of debuggers see which version of the hook a process has loaded. */
__attribute__((visibility("default"))) const char orion_hook_version[] = ORION_VERSION;
