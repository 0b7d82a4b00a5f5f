/* The functions that stand behind the interposed ones: the C library's look-ups and the driver's own functions. */
#ifndef ORION_RESOLVE_H
#define ORION_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>

/* Take part of the signatures of dlsym and dlvsym; NULL: the C library has none (musl: dlvsym). */
void *(*orion_real_dlsym(void))(void *, const char *);
void *(*orion_real_dlvsym(void))(void *, const char *, const char *);

/* Fills orion_real and orion_driver if a driver is loaded. Leaves dlerror's state behind, so a look-up that was asked
 * for comes after it. */
bool orion_resolve_if_loaded(void);

/* The driver's function of that row of orion_functions; loads the driver if nobody has. NULL: no driver, or too old. */
void *orion_resolve_row(size_t row);

#endif
