#include "interposition/elf_object.h"

/* glibc relocates these entries in place. musl does not, and neither does the kernel's vdso. */
static const void *pointer_of(uintptr_t base, ElfW(Addr) value) { return (const void *)(value < base ? base + value : value); }

bool orion_elf_read(uintptr_t base, const ElfW(Dyn) * dynamic, struct orion_elf_object *object)
{
    if (dynamic == NULL) return false;
    *object = (struct orion_elf_object){.base = base};
    uintptr_t soname = 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *pointer = pointer_of(base, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB: object->symbols = pointer; break;
        case DT_STRTAB: object->strings = pointer; break;
        case DT_GNU_HASH: object->gnu_hash = pointer; break;
        case DT_HASH: object->sysv_hash = pointer; break;
        case DT_VERSYM: object->versions = pointer; break;
        case DT_SONAME: soname = dynamic->d_un.d_val; break;
        case DT_RELA: object->relocated[0] = pointer; break;
        case DT_RELASZ: object->relocated_bytes[0] = dynamic->d_un.d_val; break;
        case DT_RELACOUNT: object->relative = dynamic->d_un.d_val; break;
        case DT_JMPREL: object->relocated[1] = pointer; break;
        case DT_PLTRELSZ: object->relocated_bytes[1] = dynamic->d_un.d_val; break;
        }
    }
    if (object->strings != NULL && soname != 0) object->soname = object->strings + soname;
    return object->symbols != NULL && object->strings != NULL;
}

const ElfW(Dyn) * orion_elf_dynamic(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

bool orion_elf_holds(const struct dl_phdr_info *info, uintptr_t address, unsigned flags)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t offset = address - info->dlpi_addr - segment->p_vaddr; /* an address below wraps to a huge offset */
        if (segment->p_type == PT_LOAD && offset < segment->p_memsz && (segment->p_flags & flags) == flags) return true;
    }
    return false;
}
