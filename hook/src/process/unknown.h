/* The driver functions that the program looked up and that the hook does not know, because the driver is newer than the
 * hook. The hook passes calls of these functions to the driver: what they launch is not stopped, and what they allocate
 * is not counted. */
#ifndef ORION_UNKNOWN_H
#define ORION_UNKNOWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORION_UNKNOWN_MOST 16u

struct orion_unknown {
    _Atomic uint32_t count; /* entries that are complete */
    struct {
        _Atomic uint32_t state; /* 0: free, 1: being written, 2: complete; then the name never changes */
        char name[48];
    } entry[ORION_UNKNOWN_MOST];
};

/* Returns whether the name is new. Two threads that note the same name at the same time may both enter it. When the
 * table is full, further names are dropped. */
bool orion_unknown_note(struct orion_unknown *unknown, const char *name);

/* Writes as many names as fit, separated by commas. Returns their number. */
uint32_t orion_unknown_names(struct orion_unknown *unknown, char *text, size_t size);

#endif
