/* The interposed functions of the driver as a table, for look-ups. */
#ifndef ORION_INTERCEPT_H
#define ORION_INTERCEPT_H

#include <stdbool.h>
#include <stddef.h>

struct orion_function {
    const char *name;
    void *wrapper;   /* NULL: a variant that is known and left alone */
    bool per_thread; /* a null stream is the calling thread's default stream */
};

/* In the order of strcmp, and the driver's own function of each: NULL until resolved, and where the driver lacks it.
 * Written with release, read with acquire, by any thread. */
extern const struct orion_function orion_functions[];
extern const size_t orion_function_count;
extern void *orion_real[];

#endif
