/* Descriptors of shared pages (orion/pages.h): whether one is what it should be, and mapping it. */
#ifndef ORION_PAGE_H
#define ORION_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orion/pages.h"

/* Whether fd is a page of this kind; reads its header. The page must be sealed against shrinking: if a process shrank
 * it, its readers would fault. */
bool orion_page_has_kind(int fd, uint32_t kind, struct orion_page_header *header);

/* The same for a page of the GPU whose name is in `gpu`, NUL-padded as in the header. */
bool orion_page_is(int fd, uint32_t kind, const char *gpu);

/* Bytes from one page to the next where they lie side by side: what the kernel maps at once, 64 KiB on some machines with arm64. A page
 * takes ORION_PAGE_SIZE of it. */
size_t orion_page_step(void);

/* Replaces the page at the address, also while threads read it; fd -1: by a private page of zeros. A forked child does not
 * inherit it. Returns 0, or -1 on failure. */
int orion_page_map_over(void *address, int fd, bool writable);

#endif
