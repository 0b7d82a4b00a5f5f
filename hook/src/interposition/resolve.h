/* The functions that the hook's functions replace: the C library's look-ups and the driver's own functions. */
#ifndef ORION_RESOLVE_H
#define ORION_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>

/* Return the C library's dlsym, dlvsym and dlopen; NULL: the C library has no such function (musl: dlvsym). */
void *(*orion_real_dlsym(void))(void *, const char *);
void *(*orion_real_dlvsym(void))(void *, const char *, const char *);
void *(*orion_real_dlopen(void))(const char *, int);

/* The dlopen that a call would reach without the hook. It may be another preloaded library's. */
void *(*orion_next_dlopen(void))(const char *, int);

/* Fills orion_real and orion_driver if a driver is loaded; true: they are filled. This changes dlerror's state, so do
 * it before the program's own look-up. */
bool orion_resolve_if_loaded(void);

/* Whether the driver exports the name. Only after orion_resolve_if_loaded has returned true; it changes dlerror's state,
 * too. */
bool orion_resolve_exports(const char *name);

/* The driver's function of that row of orion_cuda. Loads the driver if it is not loaded. NULL: there is no driver,
 * or the driver is too old. */
void *orion_resolve_row(size_t row);

#endif
