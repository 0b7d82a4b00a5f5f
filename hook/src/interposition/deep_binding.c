#include "interposition/deep_binding.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interposition/elf_object.h"
#include "interposition/elf_symbols.h"
#include "interposition/intercept.h"
#include "interposition/resolve.h"

#if defined(__x86_64__)
enum { DATA = R_X86_64_64, GLOBAL = R_X86_64_GLOB_DAT, CALL = R_X86_64_JUMP_SLOT };
#else
enum { DATA = R_AARCH64_ABS64, GLOBAL = R_AARCH64_GLOB_DAT, CALL = R_AARCH64_JUMP_SLOT };
#endif

/* The objects that are loaded at one time. */
struct listed {
    uintptr_t base;
    const ElfW(Phdr) * segments;
};
struct list {
    struct listed *objects;
    size_t count, room;
};

struct search {
    struct list before, after;
    struct orion_replaced (*replaced)(const char *name);
    bool variables; /* binds an object's own variables, and not the functions that it calls */
};

bool orion_deep_binds(const char *path, int mode)
{
#ifdef RTLD_DEEPBIND
    return (mode & RTLD_DEEPBIND) != 0 && path != NULL && strchr(path, '/') != NULL && strchr(path, '$') == NULL;
#else
    return (void)path, (void)mode, false;
#endif
}

static int list_one(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct list *list = argument;
    if (list->count < list->room) list->objects[list->count] = (struct listed){info->dlpi_addr, info->dlpi_phdr};
    list->count++;
    return 0;
}

static void empty_list(struct list *list)
{
    if (list->room != 0) munmap(list->objects, list->room * sizeof *list->objects);
    *list = (struct list){0};
}

/* Counts first: dl_iterate_phdr holds a lock, and a program's own malloc may want that lock while it holds another. False:
 * there is no memory. */
static bool fill_list(struct list *list)
{
    for (;;) {
        list->count = 0;
        dl_iterate_phdr(list_one, list);
        if (list->count <= list->room) return true;
        size_t room = list->count + 64; /* other threads may load some meanwhile */
        empty_list(list);
        void *memory = mmap(NULL, room * sizeof *list->objects, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return false;
        *list = (struct list){.objects = memory, .room = room};
    }
}

static bool is_listed(const struct list *list, const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->objects[i].base == info->dlpi_addr && list->objects[i].segments == info->dlpi_phdr) return true;
    return false;
}

static uintptr_t page_of(uintptr_t address) { return address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1); }

/* Whether the dynamic linker has made the page read-only. It leaves out a last one that is only partly sealed. */
static bool is_sealed(const struct dl_phdr_info *info, uintptr_t place)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_GNU_RELRO) continue;
        return place >= page_of(start) && place < page_of(start + info->dlpi_phdr[i].p_memsz);
    }
    return false;
}

/* Other threads may call through the place meanwhile: they find the old or the new function. */
static void write_place(const struct dl_phdr_info *info, uintptr_t place, void *function)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)page_of(place);
    bool sealed = is_sealed(info, place);
    if (sealed && mprotect(page, bytes, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n((void **)place, function, __ATOMIC_RELEASE);
    if (sealed) mprotect(page, bytes, PROT_READ);
}

static void bind_place(const struct dl_phdr_info *info, uintptr_t place, const void *from, void *to)
{
    if (from == NULL || to == NULL) return;
    if (!orion_elf_holds(info, place, PF_W)) return; /* the dynamic linker made it writable only for a time (DT_TEXTREL) */
    if (__atomic_load_n((void **)place, __ATOMIC_RELAXED) == from) write_place(info, place, to);
}

static void bind_table(const struct dl_phdr_info *info, const struct orion_elf_object *object, int which,
                       const struct search *search)
{
    const ElfW(Rela) *entry = object->relocated[which], *end = entry + object->relocated_bytes[which] / sizeof *entry;
    if (entry == NULL) return;
    for (entry += which == 0 ? object->relative : 0; entry < end; entry++) {
        uint32_t type = (uint32_t)entry->r_info;
        const ElfW(Sym) *symbol = &object->symbols[entry->r_info >> 32];
        bool variable = symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 15u) == STT_OBJECT;
        if ((type != DATA && type != GLOBAL && type != CALL) || entry->r_addend != 0) continue;
        if (search->variables ? !variable : symbol->st_shndx != SHN_UNDEF) continue;
        struct orion_replaced replaced = search->replaced(object->strings + symbol->st_name);
        uintptr_t place = object->base + entry->r_offset;
        if (variable) bind_place(info, place, replaced.hooks, (void *)(object->base + symbol->st_value));
        else bind_place(info, place, replaced.real, replaced.hooks);
    }
}

static int bind_new(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    const struct search *search = argument;
    struct orion_elf_object object;
    if (is_listed(&search->before, info) || !is_listed(&search->after, info)) return 0;
    if (!orion_elf_read(info->dlpi_addr, orion_elf_dynamic(info), &object)) return 0;
    if (search->variables && !orion_elf_has_data(&object, "cuInit")) return 0; /* few have; the rest would take long */
    for (int which = 0; which < 2; which++) bind_table(info, &object, which, search);
    return 0;
}

/* Another thread's library is in the list before the dynamic linker has finished it. dladdr waits for that linker's lock,
 * so afterwards all that were in the list are complete. */
static void wait_for_loads(void)
{
    Dl_info unused;
    dladdr((const void *)orion_deep_open, &unused);
}

/* A call that is not bound yet would be bound past the hook later, and nobody knows whether to the driver or to a function that the library
 * brings itself. So the dynamic linker binds all of them, unless the library calls one that does not exist. */
static void *open_bound(const char *path, int mode)
{
    void *library = (mode & RTLD_NOW) == 0 ? orion_next_dlopen()(path, (mode & ~RTLD_LAZY) | RTLD_NOW) : NULL;
    return library != NULL ? library : orion_next_dlopen()(path, mode);
}

/* Looks the replaced functions up before the walk, because that needs a lock that comes before the walk's. */
void *orion_deep_open(const char *path, int mode, struct orion_replaced (*replaced)(const char *name))
{
    struct search search = {.replaced = replaced};
    bool listed = fill_list(&search.before);
    void *library = open_bound(path, mode);
    if (library != NULL && listed && fill_list(&search.after)) {
        wait_for_loads();
        orion_cuda.resolve_if_loaded();
        orion_nvml.resolve_if_loaded();
        dlerror(); /* these look-ups may have failed; the program's call has not */
        dl_iterate_phdr(bind_new, &search);
    }
    empty_list(&search.before);
    empty_list(&search.after);
    return library;
}

/* Not strstr: see elf_object.h. */
bool orion_opens_driver(const char *path)
{
    static const char name[] = "libcuda.so";
    for (; path != NULL && *path != '\0'; path++) {
        size_t same = 0;
        while (name[same] != '\0' && path[same] == name[same]) same++;
        if (name[same] == '\0') return true;
    }
    return false;
}

void orion_bind_variables(struct orion_replaced (*replaced)(const char *name))
{
    struct search search = {.replaced = replaced, .variables = true};
    if (fill_list(&search.after)) {
        wait_for_loads();
        dl_iterate_phdr(bind_new, &search);
    }
    empty_list(&search.after);
}
