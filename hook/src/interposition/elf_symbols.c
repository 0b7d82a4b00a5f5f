#include "interposition/elf_symbols.h"

#include <sys/auxv.h>

#include "interposition/elf_object.h"

/* See elf_object.h for why these are not the C library's. */
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

#define FUNCTIONS (1u << STT_FUNC | 1u << STT_NOTYPE)
#define VARIABLES (1u << STT_OBJECT)

static void *defined(const struct orion_elf_object *object, uint32_t index, const char *name, unsigned types)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    unsigned type = symbol->st_info & 15u;                                              /* the same for both ELF classes */
    bool hidden = object->versions != NULL && (object->versions[index] & 0x8000u) != 0; /* not the default version */
    if (symbol->st_shndx == SHN_UNDEF || hidden || (types >> type & 1u) == 0) return NULL;
    return same(object->strings + symbol->st_name, name) ? (void *)(object->base + symbol->st_value) : NULL;
}

static void *find_by_gnu_hash(const struct orion_elf_object *object, const char *name, unsigned types)
{
    const uint32_t *head = object->gnu_hash; /* buckets, first hashed symbol, words of the filter, shift */
    const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + head[0];
    uint32_t hash = 5381;
    for (const char *c = name; *c != '\0'; c++) hash = hash * 33 + (unsigned char)*c;
    uint32_t index = head[0] == 0 ? 0 : buckets[hash % head[0]];
    if (index < head[1] || index == 0) return NULL;
    for (;; index++) {
        uint32_t link = chain[index - head[1]];
        void *found = (link | 1) == (hash | 1) ? defined(object, index, name, types) : NULL;
        if (found != NULL || (link & 1) != 0) return found;
    }
}

static void *find(const struct orion_elf_object *object, const char *name, unsigned types)
{
    if (object->gnu_hash != NULL) return find_by_gnu_hash(object, name, types);
    if (object->sysv_hash == NULL) return NULL;
    uint32_t count = object->sysv_hash[1]; /* a linear search: libraries without a GNU hash are rare */
    for (uint32_t index = 1; index < count; index++) {
        void *found = defined(object, index, name, types);
        if (found != NULL) return found;
    }
    return NULL;
}

bool orion_elf_has_data(const struct orion_elf_object *object, const char *name) { return find(object, name, VARIABLES) != NULL; }

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

static int search_after(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    struct orion_elf_object object;
    if (search->passed && orion_elf_read(info->dlpi_addr, orion_elf_dynamic(info), &object))
        search->found = find(&object, search->name, FUNCTIONS);
    search->passed = search->passed || orion_elf_holds(info, (uintptr_t)search->address, 0);
    return search->found != NULL;
}

static void *find_in_c_library(uintptr_t base, const ElfW(Dyn) * dynamic, const char *path, const char *name)
{
    struct orion_elf_object object;
    bool ours = orion_elf_read(base, dynamic, &object) && is_c_library(path != NULL ? path : "", object.soname);
    return ours ? find(&object, name, FUNCTIONS) : NULL;
}

static int search_c_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    search->found = find_in_c_library(info->dlpi_addr, orion_elf_dynamic(info), info->dlpi_name, search->name);
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

void *orion_elf_replaced_function(const char *name)
{
    void *next = orion_elf_next_function((const void *)orion_elf_replaced_function, name);
    return next != NULL ? next : orion_elf_libc_function(name);
}
