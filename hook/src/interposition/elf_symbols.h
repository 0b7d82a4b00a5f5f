/* The dynamic symbols of the loaded objects, read from memory. (The name elf.h belongs to a system header.)
 *
 * The hook exports dlsym, so it cannot look up the real dlsym with dlsym. Rejected: dlvsym(RTLD_NEXT, "dlsym",
 * version), the usual way, because the version differs by architecture and libc, musl has no dlvsym, and another
 * preloaded library may have wrapped dlvsym; __libc_dlsym, which is private to glibc and was removed in 2.34. */
#ifndef ORION_ELF_SYMBOLS_H
#define ORION_ELF_SYMBOLS_H

#include <stdbool.h>

struct orion_elf_object;

/* Whether the object has a variable of this name that others may use. */
bool orion_elf_has_data(const struct orion_elf_object *object, const char *name);

/* The C library's own function, of the default version; NULL: it has none. Allocates nothing and takes no lock. */
void *orion_elf_libc_function(const char *name);

/* The first definition of `name` in an object that was loaded after the one that holds `address`; NULL: none. */
void *orion_elf_next_function(const void *address, const char *name);

/* What a call would reach without the hook: the first definition after the hook, which may be another preloaded library's;
 * the C library's if the hook was loaded after it. NULL: none. */
void *orion_elf_replaced_function(const char *name);

#endif
