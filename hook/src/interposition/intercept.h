/* The interposed functions of the driver and of NVML as tables, for look-ups. */
#ifndef ORION_INTERCEPT_H
#define ORION_INTERCEPT_H

#include <stdbool.h>
#include <stddef.h>

struct orion_function {
    const char *name;
    void *wrapper;   /* NULL: the hook knows this variant and passes it through */
    bool per_thread; /* a null stream is the calling thread's default stream */
};

/* One library's interposed functions. `functions` is sorted in the order of strcmp. real[i] is the library's own function
 * of row i; NULL: not resolved yet, or the library does not have it. Any thread writes `real` with release order and reads
 * it with acquire order. */
struct orion_functions {
    const struct orion_function *functions;
    size_t count;
    void **real;
    bool (*resolve_if_loaded)(void); /* fills `real` if the library is loaded; true: it is filled */
};
extern const struct orion_functions orion_cuda, orion_nvml; /* intercept.c, nvml.c */
extern void *orion_real[];                                  /* orion_cuda.real, at a constant address for the wrappers */

#endif
