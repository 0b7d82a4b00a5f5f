#include "interposition/lookup.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/ioctl.h>

#include "core/core.h"
#include "interposition/deep_binding.h"
#include "interposition/elf_symbols.h"
#include "interposition/intercept.h"
#include "interposition/resolve.h"
#include "interposition/unknown_names.h"

/* What dlsym or dlvsym does next: continue in the C library, as if the caller had called that, or return an answer. The
 * structure has two words, so it is returned in registers. */
struct decision {
    void *forward; /* jump to this address with the caller's registers and stack; NULL: return `answer` */
    void *answer;
};

struct query {
    void *handle;
    const char *name;
    const char *version; /* NULL: dlsym */
};

/* Exported; TRAMPOLINE below defines them. */
extern void *orion_exported_dlsym(void *, const char *);
extern void *orion_exported_dlvsym(void *, const char *, const char *);
extern void *orion_exported_dlopen(const char *, int);

/* Compares like strcmp. Not strcmp itself: a sanitizer's runtime calls dlsym before its own strcmp is ready. */
static int order_of(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

static const struct orion_function *function_in(const struct orion_functions *library, const char *name)
{
    size_t low = 0, high = library->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = order_of(name, library->functions[middle].name);
        if (order == 0) return &library->functions[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

static void *real_of(const struct orion_functions *library, const struct orion_function *function)
{
    return __atomic_load_n(&library->real[function - library->functions], __ATOMIC_ACQUIRE);
}

static void *ask(const struct query *query, void *handle)
{
    if (query->version == NULL) return orion_real_dlsym()(handle, query->name);
    return orion_real_dlvsym()(handle, query->name, query->version);
}

static struct decision answered(void *answer) { return (struct decision){NULL, answer}; }
static struct decision forwarded(const struct query *query)
{
    return (struct decision){query->version == NULL ? (void *)orion_real_dlsym() : (void *)orion_real_dlvsym(), NULL};
}

static bool are_in_one_object(const void *one, const void *other)
{
    Dl_info of_one, of_other;
    return dladdr(one, &of_one) && dladdr(other, &of_other) && of_one.dli_fbase == of_other.dli_fbase;
}

/* For a function of the library. If only the hook defines the name, the look-up finds nothing, as it would without the
 * hook. RTLD_DEFAULT and RTLD_NEXT also search the caller's own scope, which the hook cannot see: a program may have opened
 * the library only there. So these find the function wherever the library is loaded. */
static struct decision decide_function(const struct query *query, const struct orion_functions *library,
                                       const struct orion_function *function, const void *caller)
{
    library->resolve_if_loaded();
    void *real = real_of(library, function);
    bool next = query->handle == RTLD_NEXT, any_scope = query->version == NULL && (next || query->handle == RTLD_DEFAULT);
    /* For RTLD_NEXT the C library searches behind the object that calls dlsym; that object would be the hook. */
    void *found = next ? orion_elf_next_function(caller, query->name) : ask(query, query->handle);
    /* The library may have been loaded before the caller, unless the caller is the library: one that stands in front of another. */
    if (found == NULL && next && any_scope && !are_in_one_object(caller, real)) found = real;
    if (found == NULL || (found != function->wrapper && found != real)) return forwarded(query);
    bool exists = (found == real && !next) || (any_scope && real != NULL) || ask(query, RTLD_NEXT) != NULL;
    if (exists) return answered(function->wrapper);
    return found == real ? forwarded(query) : answered(NULL);
}

/* The C library's functions by which the hook's are found. */
static struct orion_replaced replaced_look_up(const char *name)
{
    if (order_of(name, "dlsym") == 0) return (struct orion_replaced){(void *)orion_real_dlsym(), (void *)orion_exported_dlsym};
    if (order_of(name, "dlvsym") == 0) return (struct orion_replaced){(void *)orion_real_dlvsym(), (void *)orion_exported_dlvsym};
    if (order_of(name, "dlopen") == 0) return (struct orion_replaced){(void *)orion_real_dlopen(), (void *)orion_exported_dlopen};
    return (struct orion_replaced){NULL, NULL};
}

/* Whether the hook's dlopen may lead to the caller. Then the caller needs the C library's, or the two would call each other
 * endlessly. Who looks up by RTLD_NEXT may do so for a wrapper in another library. */
static bool is_behind_dlopen(const struct query *query, const void *caller)
{
    if (query->handle == RTLD_NEXT) return true;
    for (void *next = (void *)orion_next_dlopen(); next != NULL; next = orion_elf_next_function(next, "dlopen"))
        if (are_in_one_object(caller, next)) return true;
    return false;
}

/* The answer is the hook's function, so that later look-ups with it come to the hook. */
static struct decision decide_look_up(const struct query *query, struct orion_replaced replaced, const void *caller)
{
    void *found = ask(query, query->handle);
    if (found == NULL || found != replaced.real) return forwarded(query);
    if (replaced.hooks == (void *)orion_exported_dlopen && is_behind_dlopen(query, caller)) return forwarded(query);
    return answered(replaced.hooks);
}

/* The answer does not depend on this: the hook never keeps a function of the driver from the program. */
static void report_if_unknown(const char *name)
{
    if (orion_is_unknown_name(name) && orion_resolve_if_loaded() && orion_resolve_exports(name)) orion_unknown_function(name);
}

/* NULL: the name belongs to none. */
static const struct orion_functions *library_of(const char *name)
{
    if (name[0] == 'c' && name[1] == 'u') return &orion_cuda;
    return name[0] == 'n' && name[1] == 'v' ? &orion_nvml : NULL;
}

/* For names that are neither the driver's nor NVML's, this function allocates nothing and takes no lock. */
__attribute__((used, visibility("hidden"))) struct decision orion_lookup_decide(void *handle, const char *name, const char *version,
                                                                                const void *caller)
{
    struct query query = {handle, name, version};
    struct decision forward = forwarded(&query);
    if (forward.forward == NULL || name == NULL) return forward;
    struct orion_replaced look_up = replaced_look_up(name);
    if (look_up.hooks != NULL) return decide_look_up(&query, look_up, caller);
    const struct orion_functions *library = library_of(name);
    const struct orion_function *function = library == NULL ? NULL : function_in(library, name);
    if (library == &orion_cuda && function == NULL) report_if_unknown(name);
    return function == NULL || function->wrapper == NULL ? forward : decide_function(&query, library, function, caller);
}

/* For a name in a library that binds deeply. */
static struct orion_replaced replaced_in_library(const char *name)
{
    const struct orion_functions *library = library_of(name);
    const struct orion_function *function = library == NULL ? NULL : function_in(library, name);
    if (function != NULL) return (struct orion_replaced){real_of(library, function), function->wrapper};
    if (order_of(name, "ioctl") == 0) return (struct orion_replaced){orion_elf_libc_function(name), (void *)ioctl};
    return replaced_look_up(name);
}

__attribute__((used, visibility("hidden"))) struct decision orion_open_decide(const char *path, long mode)
{
    if (orion_opens_driver(path)) orion_bind_variables(replaced_in_library);
    if (!orion_deep_binds(path, (int)mode)) return (struct decision){(void *)orion_next_dlopen(), NULL};
    return answered(orion_deep_open(path, (int)mode, replaced_in_library));
}

/* dlsym, dlvsym and dlopen. They save the arguments and call `decide`. Then they return its answer, or make a tail
 * jump to the next function. The tail jump keeps the stack and the return address, because RTLD_NEXT,
 * RTLD_DEFAULT and the paths in which dlopen searches depend on the caller. */
#if defined(__x86_64__)
#define TRAMPOLINE(name, version, decide) \
    ".globl " name "\n.type " name ", @function\n.p2align 4\n" name ":\n" \
    ".globl orion_exported_" name "\n.hidden orion_exported_" name "\norion_exported_" name ":\n" \
    ".cfi_startproc\n" \
    "endbr64\n" \
    "pushq %rdi\n.cfi_adjust_cfa_offset 8\n" \
    "pushq %rsi\n.cfi_adjust_cfa_offset 8\n" \
    "pushq %rdx\n.cfi_adjust_cfa_offset 8\n" version "movq 24(%rsp), %rcx\n" \
    "call " decide "\n" \
    "movq %rdx, %r8\n" \
    "popq %rdx\n.cfi_adjust_cfa_offset -8\n" \
    "popq %rsi\n.cfi_adjust_cfa_offset -8\n" \
    "popq %rdi\n.cfi_adjust_cfa_offset -8\n" \
    "testq %rax, %rax\nje 1f\n" \
    "jmp *%rax\n" \
    "1: movq %r8, %rax\nret\n" \
    ".cfi_endproc\n.size " name ", . - " name "\n"
#define NO_VERSION "xorl %edx, %edx\n"
#elif defined(__aarch64__)
#define TRAMPOLINE(name, version, decide) \
    ".globl " name "\n.type " name ", %function\n.p2align 4\n" name ":\n" \
    ".globl orion_exported_" name "\n.hidden orion_exported_" name "\norion_exported_" name ":\n" \
    ".cfi_startproc\n" \
    "hint 34\n" /* bti c */ \
    "stp x29, x30, [sp, -48]!\n.cfi_def_cfa_offset 48\n.cfi_offset 29, -48\n.cfi_offset 30, -40\n" \
    "stp x0, x1, [sp, 16]\n" \
    "str x2, [sp, 32]\n" \
    "mov x29, sp\n" version "mov x3, x30\n" \
    "bl " decide "\n" \
    "mov x16, x0\nmov x17, x1\n" \
    "ldp x0, x1, [sp, 16]\n" \
    "ldr x2, [sp, 32]\n" \
    "ldp x29, x30, [sp], 48\n.cfi_restore 29\n.cfi_restore 30\n.cfi_def_cfa_offset 0\n" \
    "cbz x16, 1f\n" \
    "br x16\n" \
    "1: mov x0, x17\nret\n" \
    ".cfi_endproc\n.size " name ", . - " name "\n"
#define NO_VERSION "mov x2, xzr\n"
#else
#error "no trampoline for this architecture; CUDA has drivers for x86-64 and aarch64"
#endif
__asm__(".text\n" TRAMPOLINE("dlsym", NO_VERSION, "orion_lookup_decide") TRAMPOLINE("dlvsym", "", "orion_lookup_decide")
            TRAMPOLINE("dlopen", "", "orion_open_decide"));

/* Whether `name` is `symbol` in one of its ABIs: symbol, symbol_v2, symbol_ptsz, symbol_v2_ptds. */
static bool is_variant(const char *name, const char *symbol)
{
    size_t length = strlen(symbol);
    if (strncmp(name, symbol, length) != 0) return false;
    name += length;
    if (name[0] == '_' && name[1] == 'v' && name[2] >= '0' && name[2] <= '9') name += 3;
    return *name == '\0' || strcmp(name, "_ptsz") == 0 || strcmp(name, "_ptds") == 0;
}

/* The driver returns the addresses of its exported functions, so the address identifies the variant, and the hook needs
 * no list of versions and flags. If an address has several names, this prefers names of `symbol`, and among these the
 * name that fits the flags. */
static const struct orion_function *variant_at(const void *found, const char *symbol, bool per_thread)
{
    const struct orion_function *best = NULL;
    int best_score = -1;
    for (size_t row = 0; row < orion_cuda.count; row++) {
        const struct orion_function *function = &orion_cuda.functions[row];
        if (real_of(&orion_cuda, function) != found) continue;
        int score = 2 * is_variant(function->name, symbol) + (function->per_thread == per_thread);
        if (score > best_score) best = function, best_score = score;
    }
    return best;
}

static bool is_wrapper(const void *found)
{
    for (size_t row = 0; row < orion_cuda.count; row++)
        if (orion_cuda.functions[row].wrapper == found) return true;
    return false;
}

void *orion_lookup_procedure(const char *symbol, void *found, uint64_t flags)
{
    if (found == NULL || symbol == NULL) return found;
    if (function_in(&orion_cuda, symbol) == NULL) {
        if (orion_is_unknown_name(symbol)) orion_unknown_function(symbol);
        return found;
    }
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct orion_function *function = variant_at(found, symbol, per_thread);
    if (function != NULL) return function->wrapper != NULL ? function->wrapper : found;
    if (!is_wrapper(found)) orion_unknown_function(symbol);
    return found;
}

bool orion_lookup_interposes(void)
{
    return orion_real_dlsym() != NULL && orion_real_dlsym()(RTLD_DEFAULT, "dlsym") == (void *)orion_exported_dlsym;
}
