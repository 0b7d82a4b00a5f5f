/* The dynamic symbols of the loaded objects, read from memory. (Not elf.h: that is a header of the system.)
 *
 * The hook exports dlsym, so it cannot ask dlsym for dlsym. Refused: dlvsym(RTLD_NEXT, "dlsym", version), the usual
 * way: it needs a version that differs by architecture and libc, musl has no dlvsym at all, and another preload may
 * have wrapped it; __libc_dlsym, which is private to glibc and gone since 2.34. */
#ifndef ORION_ELF_SYMBOLS_H
#define ORION_ELF_SYMBOLS_H

/* The C library's own function, of the default version; NULL: it has none. Allocates nothing, locks nothing. */
void *orion_elf_libc_function(const char *name);

/* The first definition of `name` in an object that was loaded after the one that holds `address`; NULL: none. */
void *orion_elf_next_function(const void *address, const char *name);

#endif
