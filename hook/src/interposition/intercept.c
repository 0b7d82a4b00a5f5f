/* The functions that a process calls in the place of the driver's, one for each name that the driver exports.
 *
 * They are generated from hook/declarations: each fetches the driver's function, tells the core what is about to
 * happen, calls, and tells the core what came of it. Look-ups by name end in the same functions (lookup.c).
 *
 * Each is a static function with an exported alias: the table then holds our own addresses even where another preload
 * ahead of us defines a function of the same name. */
#define __CUDA_API_VERSION_INTERNAL /* cuda.h then declares every ABI variant under the name that the driver exports */
#include "interposition/intercept.h"

#include <cuda.h>
#include <stdint.h>

#include "core/core.h"
#include "core/lifetimes.h"
#include "generated/driver.h"
#include "interposition/launched.h"
#include "interposition/lookup.h"
#include "interposition/resolve.h"
#include "learning/extent.h"
#include "learning/graphs.h"
#include "memory/memory.h"
#include "streams/capture.h"
#include "streams/priorities.h"
#include "threads/redirect.h"

#define INTERPOSED(name, parameters) \
    static CUresult wrapped_##name parameters; \
    extern __typeof__(name) name __attribute__((alias("wrapped_" #name), visibility("default"))); \
    static CUresult wrapped_##name parameters

/* The driver's function, as `real`. Without a driver, or with one that is older than the function, the call fails. */
#define REAL(name) \
    void *address_of_real = __atomic_load_n(&orion_real[ROW_##name], __ATOMIC_ACQUIRE); \
    if (__builtin_expect(address_of_real == NULL, 0)) address_of_real = orion_resolve_row(ROW_##name); \
    if (__builtin_expect(address_of_real == NULL, 0)) return CUDA_ERROR_NOT_FOUND; \
    __typeof__(&name) real = (__typeof__(&name))address_of_real

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
    if (result == CUDA_SUCCESS && pfn != NULL) *pfn = orion_lookup_procedure(symbol, *pfn, cudaVersion, flags);
    return result;
}

INTERPOSED(cuGetProcAddress_v2,
           (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus))
{
    REAL(cuGetProcAddress_v2);
    CUresult result = real(symbol, pfn, cudaVersion, flags, symbolStatus);
    if (result == CUDA_SUCCESS && pfn != NULL) *pfn = orion_lookup_procedure(symbol, *pfn, cudaVersion, flags);
    return result;
}

#define WRAPPED(name, per_thread) {#name, (void *)wrapped_##name, per_thread},
#define PASSED(name, per_thread) {#name, NULL, per_thread},
const struct orion_function orion_functions[] = {
#include "generated/table.inc"
};
const size_t orion_function_count = ROWS;

/* Says which hook a process carries, to people with nm and to debuggers. */
__attribute__((visibility("default"))) const char orion_hook_version[] = ORION_VERSION;
