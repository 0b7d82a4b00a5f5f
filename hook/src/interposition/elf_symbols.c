#include "interposition/elf_symbols.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

struct symbols {
    uintptr_t base;
    const ElfW(Sym) * table;
    const char *strings;
    const char *soname;          /* NULL: none */
    const uint32_t *gnu_hash;    /* NULL: none */
    const uint32_t *sysv_hash;   /* NULL: none */
    const ElfW(Half) * versions; /* NULL: unversioned */
};

/* This file avoids functions of the C library. A sanitizer's runtime calls dlsym to find the functions that it
 * intercepts. A strcmp or dl_iterate_phdr called here would be the runtime's own, which is not ready at that time. */
static bool begins(const char *text, const char *beginning)
{
    while (*beginning != '\0' && *text == *beginning) text++, beginning++;
    return *beginning == '\0';
}
static bool same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) a++, b++;
    return *a == *b;
}

/* glibc relocates these entries in place. musl does not, and neither does the kernel's vdso. */
static const void *pointer_of(uintptr_t base, ElfW(Addr) value) { return (const void *)(value < base ? base + value : value); }

static bool read_symbols(uintptr_t base, const ElfW(Dyn) * dynamic, struct symbols *symbols)
{
    if (dynamic == NULL) return false;
    *symbols = (struct symbols){.base = base};
    uintptr_t soname = 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *pointer = pointer_of(base, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB: symbols->table = pointer; break;
        case DT_STRTAB: symbols->strings = pointer; break;
        case DT_GNU_HASH: symbols->gnu_hash = pointer; break;
        case DT_HASH: symbols->sysv_hash = pointer; break;
        case DT_VERSYM: symbols->versions = pointer; break;
        case DT_SONAME: soname = dynamic->d_un.d_val; break;
        }
    }
    if (symbols->strings != NULL && soname != 0) symbols->soname = symbols->strings + soname;
    return symbols->table != NULL && symbols->strings != NULL;
}

static void *defined(const struct symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];
    unsigned type = symbol->st_info & 15u;                                                /* the same for both ELF classes */
    bool hidden = symbols->versions != NULL && (symbols->versions[index] & 0x8000u) != 0; /* not the default version */
    if (symbol->st_shndx == SHN_UNDEF || hidden || (type != STT_FUNC && type != STT_NOTYPE)) return NULL;
    return same(symbols->strings + symbol->st_name, name) ? (void *)(symbols->base + symbol->st_value) : NULL;
}

static void *find_by_gnu_hash(const struct symbols *symbols, const char *name)
{
    const uint32_t *head = symbols->gnu_hash; /* buckets, first hashed symbol, words of the filter, shift */
    const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + head[0];
    uint32_t hash = 5381;
    for (const char *c = name; *c != '\0'; c++) hash = hash * 33 + (unsigned char)*c;
    uint32_t index = head[0] == 0 ? 0 : buckets[hash % head[0]];
    if (index < head[1] || index == 0) return NULL;
    for (;; index++) {
        uint32_t link = chain[index - head[1]];
        void *found = (link | 1) == (hash | 1) ? defined(symbols, index, name) : NULL;
        if (found != NULL || (link & 1) != 0) return found;
    }
}

static void *find(const struct symbols *symbols, const char *name)
{
    if (symbols->gnu_hash != NULL) return find_by_gnu_hash(symbols, name);
    if (symbols->sysv_hash == NULL) return NULL;
    uint32_t count = symbols->sysv_hash[1]; /* a linear search: libraries without a GNU hash are rare */
    for (uint32_t index = 1; index < count; index++) {
        void *found = defined(symbols, index, name);
        if (found != NULL) return found;
    }
    return NULL;
}

/* glibc before 2.34 has dlsym in libdl. musl's C library is also its dynamic linker, and upstream gives it no
 * soname. */
static bool is_c_library(const char *path, const char *soname)
{
    const char *file = path;
    for (const char *c = path; *c != '\0'; c++)
        if (*c == '/') file = c + 1;
    if (soname == NULL) soname = file;
    return begins(soname, "libc.") || begins(soname, "libdl.") || begins(file, "ld-musl");
}

/* The list of loaded objects that debuggers read. The dynamic linker writes its address into the program's dynamic
 * section. NULL: not found. For example, if a user starts musl's linker as a program, the kernel's auxiliary vector
 * describes the linker instead of the program. */
static const struct link_map *first_object(void)
{
    const ElfW(Phdr) *header = (const ElfW(Phdr) *)getauxval(AT_PHDR), *self = NULL, *dynamic = NULL;
    for (unsigned long i = 0; header != NULL && i < getauxval(AT_PHNUM); i++) {
        if (header[i].p_type == PT_PHDR) self = &header[i];
        if (header[i].p_type == PT_DYNAMIC) dynamic = &header[i];
    }
    if (self == NULL || dynamic == NULL) return NULL;
    const ElfW(Dyn) *entry = (const ElfW(Dyn) *)((uintptr_t)header - self->p_vaddr + dynamic->p_vaddr);
    for (; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_DEBUG) break;
    const struct r_debug *debug = entry->d_tag == DT_DEBUG ? (const struct r_debug *)entry->d_un.d_ptr : NULL;
    return debug != NULL ? debug->r_map : NULL;
}

struct search {
    const char *name;
    const void *address;
    bool passed; /* the search has passed the object that contains the address */
    void *found;
};

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info, const void *address, bool *holds)
{
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t offset = (uintptr_t)address - info->dlpi_addr - segment->p_vaddr; /* an address below wraps to a huge offset */
        if (segment->p_type == PT_LOAD && offset < segment->p_memsz) *holds = true;
        if (segment->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + segment->p_vaddr);
    }
    return dynamic;
}

static int search_after(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    struct symbols symbols;
    bool holds = false;
    const ElfW(Dyn) *dynamic = dynamic_of(info, search->address, &holds);
    if (search->passed && read_symbols(info->dlpi_addr, dynamic, &symbols)) search->found = find(&symbols, search->name);
    search->passed = search->passed || holds;
    return search->found != NULL;
}

static void *find_in_c_library(uintptr_t base, const ElfW(Dyn) * dynamic, const char *path, const char *name)
{
    struct symbols symbols;
    bool ours = read_symbols(base, dynamic, &symbols) && is_c_library(path != NULL ? path : "", symbols.soname);
    return ours ? find(&symbols, name) : NULL;
}

static int search_c_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    bool holds;
    search->found = find_in_c_library(info->dlpi_addr, dynamic_of(info, NULL, &holds), info->dlpi_name, search->name);
    return search->found != NULL;
}

/* Reading the list needs no lock: the C library comes before every object that can be unloaded. A program may be linked
 * without DT_DEBUG, so it has no pointer to the list; then dl_iterate_phdr walks the objects. */
void *orion_elf_libc_function(const char *name)
{
    struct search search = {.name = name};
    const struct link_map *object = first_object();
    if (object == NULL) dl_iterate_phdr(search_c_library, &search);
    for (; object != NULL && search.found == NULL; object = object->l_next)
        search.found = find_in_c_library(object->l_addr, object->l_ld, object->l_name, name);
    return search.found;
}

void *orion_elf_next_function(const void *address, const char *name)
{
    struct search search = {.name = name, .address = address};
    dl_iterate_phdr(search_after, &search);
    return search.found;
}
