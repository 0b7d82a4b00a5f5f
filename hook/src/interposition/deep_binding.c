#include "interposition/deep_binding.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interposition/resolve.h"

#if defined(__x86_64__)
enum { DATA = R_X86_64_64, GLOBAL = R_X86_64_GLOB_DAT, JUMP = R_X86_64_JUMP_SLOT };
#else
enum { DATA = R_AARCH64_ABS64, GLOBAL = R_AARCH64_GLOB_DAT, JUMP = R_AARCH64_JUMP_SLOT };
#endif

/* One loaded library: where it is, and its tables of relocations. */
struct object {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Rela) * tables[2]; /* of data, and of calls */
    size_t bytes[2];
    size_t relative; /* so many entries at the start of the first table name no symbol */
    /* The pages that the dynamic linker has made read-only. It leaves out a last one that is only partly so. */
    uintptr_t sealed, sealed_end;
};

/* How many libraries were loaded in all, and which of them to look at. */
struct search {
    unsigned long long loaded_before, seen;
    void *(*hook_function)(const char *name);
};

bool orion_deep_binds(const char *path, int mode)
{
#ifdef RTLD_DEEPBIND
    return (mode & RTLD_DEEPBIND) != 0 && path != NULL && strchr(path, '/') != NULL;
#else
    return (void)path, (void)mode, false;
#endif
}

static uintptr_t page_of(uintptr_t address) { return address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1); }

static const void *pointer_of(const struct object *object, ElfW(Addr) value)
{
    return (const void *)(value < object->base ? object->base + value : value); /* as in elf_symbols.c */
}

static void read_entry(struct object *object, const ElfW(Dyn) * entry)
{
    switch (entry->d_tag) {
    case DT_SYMTAB: object->symbols = pointer_of(object, entry->d_un.d_ptr); break;
    case DT_STRTAB: object->strings = pointer_of(object, entry->d_un.d_ptr); break;
    case DT_RELA: object->tables[0] = pointer_of(object, entry->d_un.d_ptr); break;
    case DT_RELASZ: object->bytes[0] = entry->d_un.d_val; break;
    case DT_RELACOUNT: object->relative = entry->d_un.d_val; break;
    case DT_JMPREL: object->tables[1] = pointer_of(object, entry->d_un.d_ptr); break;
    case DT_PLTRELSZ: object->bytes[1] = entry->d_un.d_val; break;
    }
}

static bool read_object(const struct dl_phdr_info *info, struct object *object)
{
    *object = (struct object){.base = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t address = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_GNU_RELRO)
            object->sealed = page_of(address), object->sealed_end = page_of(address + segment->p_memsz);
        if (segment->p_type != PT_DYNAMIC) continue;
        for (const ElfW(Dyn) *entry = (const ElfW(Dyn) *)address; entry->d_tag != DT_NULL; entry++) read_entry(object, entry);
    }
    return object->symbols != NULL && object->strings != NULL;
}

/* Other threads may call through the place meanwhile: they find the old or the new function. */
static void write_place(const struct object *object, uintptr_t place, void *function)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)page_of(place);
    bool sealed = place >= object->sealed && place < object->sealed_end;
    if (__atomic_load_n((void **)place, __ATOMIC_RELAXED) == function) return;
    if (sealed && mprotect(page, bytes, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n((void **)place, function, __ATOMIC_RELEASE);
    if (sealed) mprotect(page, bytes, PROT_READ);
}

static void bind_table(const struct object *object, int which, void *(*hook_function)(const char *name))
{
    const ElfW(Rela) *entry = object->tables[which], *end = entry + object->bytes[which] / sizeof *entry;
    if (entry == NULL) return;
    for (entry += which == 0 ? object->relative : 0; entry < end; entry++) {
        uint32_t type = (uint32_t)entry->r_info;
        const ElfW(Sym) *symbol = &object->symbols[entry->r_info >> 32];
        if ((type != DATA && type != GLOBAL && type != JUMP) || entry->r_addend != 0 || symbol->st_shndx != SHN_UNDEF) continue;
        void *function = hook_function(object->strings + symbol->st_name);
        if (function != NULL) write_place(object, object->base + entry->r_offset, function);
    }
}

/* The libraries that a call has loaded are the last ones. One that another thread loaded meanwhile has these functions already. */
static int bind_new(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    struct object object;
    unsigned long long here = info->dlpi_adds - info->dlpi_subs, loaded = info->dlpi_adds - search->loaded_before;
    if (search->seen++ + loaded < here || !read_object(info, &object)) return 0;
    for (int which = 0; which < 2; which++) bind_table(&object, which, search->hook_function);
    return 0;
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    *(unsigned long long *)argument = info->dlpi_adds;
    return 1;
}

void *orion_deep_open(const char *path, int mode, void *(*hook_function)(const char *name))
{
    struct search search = {.hook_function = hook_function};
    dl_iterate_phdr(count_loaded, &search.loaded_before);
    void *library = orion_real_dlopen() == NULL ? NULL : orion_real_dlopen()(path, mode);
    if (library != NULL) dl_iterate_phdr(bind_new, &search);
    return library;
}
