/* Look-ups by name: dlsym, dlvsym and cuGetProcAddress answer with the hook's function where they would have answered
 * with the driver's. Everything else about them stays the C library's and the driver's own.
 *
 * What a preload cannot reach, and what therefore runs unmanaged, otherwise as without us: static programs, libraries
 * opened with RTLD_DEEPBIND or by dlmopen, and functions out of cuGetExportTable. A wrapper of dlsym that was preloaded
 * behind us is not asked by look-ups that come through us: they go to the C library, so that no two wrappers can send
 * each other round in circles. */
#ifndef ORION_LOOKUP_H
#define ORION_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this process's look-ups come here: the hook was preloaded, or linked ahead of the C library; not if it was only
 * opened by dlopen. Weak, so that a test of the rest needs no interposed dlsym. */
__attribute__((weak)) bool orion_lookup_interposes(void);

/* What cuGetProcAddress answers for `symbol` where the driver answered `found`. */
void *orion_lookup_procedure(const char *symbol, void *found, int version, uint64_t flags);

#endif
