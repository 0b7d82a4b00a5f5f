/* One loaded object as it lies in memory: its segments, and the tables that its dynamic section names.
 *
 * These functions call nothing of the C library. A sanitizer's runtime calls dlsym to find the functions that it
 * intercepts. A strcmp called here would be the runtime's own, which is not ready at that time. */
#ifndef ORION_ELF_OBJECT_H
#define ORION_ELF_OBJECT_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct orion_elf_object {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const char *soname;              /* NULL: none */
    const uint32_t *gnu_hash;        /* NULL: none */
    const uint32_t *sysv_hash;       /* NULL: none */
    const ElfW(Half) * versions;     /* NULL: unversioned */
    const ElfW(Rela) * relocated[2]; /* of data, and of calls; NULL: none */
    size_t relocated_bytes[2];
    size_t relative; /* so many entries at the start of the first table name no symbol */
};

/* False: the object has no dynamic symbols. */
bool orion_elf_read(uintptr_t base, const ElfW(Dyn) * dynamic, struct orion_elf_object *object);

/* NULL: none. */
const ElfW(Dyn) * orion_elf_dynamic(const struct dl_phdr_info *info);

/* Whether the address lies in a loaded segment that has all of these flags (PF_W, PF_X). */
bool orion_elf_holds(const struct dl_phdr_info *info, uintptr_t address, unsigned flags);

#endif
