/* Kernels by their handles: what a launch's CUfunction or CUkernel is called, so that what is learnt of it outlives the
 * handle and the process.
 *
 * Asking the driver costs a call or more a launch (on an H200 12 ns for the name, 800 ns for a handle of the other kind)
 * and hashing the name as much again; so the answer is kept: a fixed, lock-free table from the handle to two words, one
 * probe on the launch path. The least recently used of a neighbourhood makes room. A handle may come to mean another
 * kernel once code was unloaded: each entry carries the epoch of its making, and every unloading begins another, so all
 * kernels are asked about once more. Refused: following modules to the kernels that they hold (handles come from four
 * functions, and from libraries that load lazily). */
#ifndef ORION_KERNELS_H
#define ORION_KERNELS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learning/identity.h"
#include "process/process.h"

#define ORION_KERNELS 4096u    /* remembered at a time; a power of two */
#define ORION_KERNEL_NAME 120u /* bytes of a name that are kept for people, with the NUL; whole words */

struct orion_kernel {
    _Atomic uint64_t word;       /* handle and epoch; 0: free; 1: being written */
    _Atomic uint64_t name, mark; /* see orion_identity_shape */
    _Atomic uint32_t used;       /* the clock when it was last launched */
    _Atomic uint32_t collective; /* 1: its name is a collective's */
};

struct orion_kernels {
    _Atomic uint32_t epoch;       /* of the code loaded now */
    _Atomic uint32_t clock;       /* grows with every kernel that is newly remembered */
    _Atomic uint32_t collectives; /* 1: a collective has been met; until then no launch asks whether it is one */
    struct orion_kernel entry[ORION_KERNELS];
    _Atomic uint64_t text[ORION_KERNELS][ORION_KERNEL_NAME / 8]; /* by entry: how the name begins; whole while its hash stays */
};
ORION_PART(kernels)

/* What stands for a kernel in identities. */
struct orion_kernel_key { uint64_t name, mark; };

/* The slow way: the rest of the neighbourhood, then the driver. May be called in any thread and in captures. */
struct orion_kernel_key orion_kernel_ask(struct orion_kernels *kernels, const void *function);

static inline uint64_t orion_kernel_word(const struct orion_kernels *kernels, const void *function)
{
    uint64_t epoch = atomic_load_explicit(&kernels->epoch, memory_order_acquire);
    return (uint64_t)(uintptr_t)function ^ (epoch << 48); /* user space ends below */
}

static inline uint32_t orion_kernel_home(const void *function)
{
    return (uint32_t)(orion_mix((uint64_t)(uintptr_t)function) >> 20) & (ORION_KERNELS - 1);
}

/* True: *key is the entry's, if it is of `word`. An entry that passes to another kernel meanwhile shows in the second look. */
static inline bool orion_kernel_read(struct orion_kernels *kernels, struct orion_kernel *entry, uint64_t word,
                                     struct orion_kernel_key *key)
{
    if (atomic_load_explicit(&entry->word, memory_order_acquire) != word) return false;
    key->name = atomic_load_explicit(&entry->name, memory_order_acquire);
    key->mark = atomic_load_explicit(&entry->mark, memory_order_acquire);
    if (atomic_load_explicit(&entry->word, memory_order_relaxed) != word) return false;
    uint32_t clock = atomic_load_explicit(&kernels->clock, memory_order_relaxed);
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != clock)
        atomic_store_explicit(&entry->used, clock, memory_order_relaxed);
    return true;
}

static inline struct orion_kernel_key orion_kernel_key(struct orion_kernels *kernels, const void *function)
{
    struct orion_kernel_key key;
    struct orion_kernel *home = &kernels->entry[orion_kernel_home(function)];
    if (__builtin_expect(orion_kernel_read(kernels, home, orion_kernel_word(kernels, function), &key), 1)) return key;
    return orion_kernel_ask(kernels, function);
}

/* By what NCCL and its kin call their kernels, mangled or not. */
bool orion_collective_is_name(const char *kernel);

/* Whether a kernel is a collective by its name; of one that was just asked about. */
bool orion_kernel_is_remembered_collective(struct orion_kernels *kernels, const void *function);
static inline bool orion_kernel_is_collective(struct orion_kernels *kernels, const void *function)
{
    if (__builtin_expect(atomic_load_explicit(&kernels->collectives, memory_order_relaxed) == 0, 1)) return false;
    return orion_kernel_is_remembered_collective(kernels, function);
}

/* Before code is unloaded, and before a context ends with the code that it loaded. */
static inline void orion_kernels_forget(struct orion_kernels *kernels) { atomic_fetch_add(&kernels->epoch, 1); }

/* How the name of that hash begins. False: it is not remembered any more. Looks through the whole table. */
bool orion_kernel_text(struct orion_kernels *kernels, uint64_t name, char *text, size_t size);

/* How many SMs a grid fills: its blocks over those that one SM holds at once, at most as many as the current context's
 * device has; 0: cannot be told. */
uint32_t orion_kernel_need(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes);

#endif
