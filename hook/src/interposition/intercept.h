/* The interposed functions of the driver as a table, for look-ups. */
#ifndef ORION_INTERCEPT_H
#define ORION_INTERCEPT_H

#include <stdbool.h>
#include <stddef.h>

struct orion_function {
    const char *name;
    void *wrapper;   /* NULL: the hook knows this variant and passes it through */
    bool per_thread; /* a null stream is the calling thread's default stream */
};

/* orion_functions is sorted in the order of strcmp. orion_real[i] is the driver's own function of row i; NULL: not
 * resolved yet, or the driver does not have it. Any thread writes orion_real with release order and reads it with
 * acquire order. */
extern const struct orion_function orion_functions[];
extern const size_t orion_function_count;
extern void *orion_real[];

#endif
