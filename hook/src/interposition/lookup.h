/* Look-ups by name: dlsym, dlvsym and cuGetProcAddress return the hook's function if they would have returned the
 * driver's. In all other respects they behave like the C library's and the driver's functions.
 *
 * Libraries that bind deeply get the hook's functions, too (deep_binding.h). A preloaded library cannot reach static
 * programs, libraries opened by dlmopen, and functions from cuGetExportTable. These run unmanaged, as they do without the
 * hook.
 *
 * The hook passes other look-ups directly to the C library. A wrapper of dlsym in a library that is preloaded after the
 * hook does not see them. If the hook called that wrapper, the two could call each other endlessly. */
#ifndef ORION_LOOKUP_H
#define ORION_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this process's look-ups come to the hook: true if the hook was preloaded or linked before the C library,
 * false if it was only opened by dlopen. Weak, so that unit tests can run without an interposed dlsym. */
__attribute__((weak)) bool orion_lookup_interposes(void);

/* The answer of cuGetProcAddress for `symbol` when the driver's answer is `found`. A function or a version of it that
 * the hook does not know is passed through and reported (process/unknown.h). */
void *orion_lookup_procedure(const char *symbol, void *found, uint64_t flags);

#endif
