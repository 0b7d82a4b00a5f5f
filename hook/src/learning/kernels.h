/* Kernels by their handles. The table maps the CUfunction or CUkernel of a launch to the hash of the kernel's name,
 * because what the hook learns under the name remains valid after the handle and the process end.
 *
 * Asking the driver at each launch is too expensive: on an H200 12 ns for the name, 800 ns for a CUkernel, and about as
 * much for hashing the name. So this table caches the answers. It has a fixed size, needs no lock, and usually costs a
 * launch one probe. A kernel can be in a few entries only. If all of them are in use, a new kernel replaces the least
 * recently used one. After code is unloaded, a handle may belong to another kernel. So each entry contains the epoch in
 * which it was made, and each unloading begins a new epoch; the hook then asks about every kernel again. Rejected:
 * tracking which module contains which kernel, because handles come from four functions and from libraries that load
 * lazily. */
#ifndef ORION_KERNELS_H
#define ORION_KERNELS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "generated/driver.h"
#include "learning/identity.h"
#include "process/process.h"

#define ORION_KERNELS 4096u    /* entries; a power of two */
#define ORION_KERNEL_NAME 120u /* bytes of a name that the table keeps for users, including the NUL; a multiple of 8 */

struct orion_kernel {
    _Atomic uint64_t word;       /* handle and epoch; 0: free; 1: being written */
    _Atomic uint64_t name, mark; /* see orion_identity_shape */
    _Atomic uint32_t used;       /* `clock` at the last launch */
    _Atomic uint32_t collective; /* 1: the name is that of a collective */
};

struct orion_kernels {
    _Atomic uint32_t epoch;       /* grows when code is unloaded */
    _Atomic uint32_t libraries;   /* grows when a library is unloaded, or a context ends */
    _Atomic uint32_t clock;       /* grows with every new entry */
    _Atomic uint32_t collectives; /* 1: the process has a collective; until then no launch checks whether it is one */
    struct orion_kernel entry[ORION_KERNELS];
    _Atomic uint64_t text[ORION_KERNELS][ORION_KERNEL_NAME / 8]; /* the name's beginning; valid while `name` stays */
};
ORION_PART(kernels)

/* What represents a kernel in identities: the hash of its name, and its mark. */
struct orion_kernel_key { uint64_t name, mark; };

/* The slow path: searches the other entries where the kernel may be, then asks the driver. Any thread may call it, also
 * in a capture. */
struct orion_kernel_key orion_kernel_ask(struct orion_kernels *kernels, const void *function);

/* A handle in an epoch. */
static inline uint64_t orion_handle_word(const void *handle, uint64_t epoch)
{
    return (uint64_t)(uintptr_t)handle ^ (epoch << 48); /* addresses in user space are below 2^48 */
}

static inline uint64_t orion_kernel_word(const struct orion_kernels *kernels, const void *function)
{
    return orion_handle_word(function, atomic_load_explicit(&kernels->epoch, memory_order_acquire));
}

static inline uint32_t orion_kernel_home(const void *function)
{
    return (uint32_t)(orion_mix((uint64_t)(uintptr_t)function) >> 20) & (ORION_KERNELS - 1);
}

/* True: the entry belongs to `word`, and *key is its key. The second read of entry->word detects that another thread
 * gave the entry to another kernel meanwhile. */
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

/* Whether the table has the kernel; false also if it has been replaced. */
bool orion_kernel_is_remembered(struct orion_kernels *kernels, const void *function);
static inline bool orion_kernel_is_known(struct orion_kernels *kernels, const void *function)
{
    const struct orion_kernel *home = &kernels->entry[orion_kernel_home(function)];
    if (__builtin_expect(atomic_load_explicit(&home->word, memory_order_relaxed) == orion_kernel_word(kernels, function), 1))
        return true;
    return orion_kernel_is_remembered(kernels, function);
}

/* Whether the kernel's code is on the GPU. The driver says nothing of a CUkernel, which belongs to a library. */
enum orion_loading { ORION_LOADING_UNKNOWN, ORION_NOT_LOADED, ORION_IS_LOADED, ORION_OF_LIBRARY };
enum orion_loading orion_kernel_loading(const void *function);

/* Whether the name is that of a collective: NCCL and compatible libraries begin their kernels' names with "nccl". The
 * name may be mangled. */
bool orion_collective_is_name(const char *kernel);

/* Whether a kernel is a collective, by its name. The kernel must be in the table: the caller has just got its key. */
bool orion_kernel_is_remembered_collective(struct orion_kernels *kernels, const void *function);
static inline bool orion_kernel_is_collective(struct orion_kernels *kernels, const void *function)
{
    if (__builtin_expect(atomic_load_explicit(&kernels->collectives, memory_order_relaxed) == 0, 1)) return false;
    return orion_kernel_is_remembered_collective(kernels, function);
}

/* Called before a module is unloaded: the kernels of libraries keep their handles and their code. */
static inline void orion_kernels_forget_module(struct orion_kernels *kernels) { atomic_fetch_add(&kernels->epoch, 1); }
/* Called before a library is unloaded, and before a context ends together with its code. */
static inline void orion_kernels_forget(struct orion_kernels *kernels)
{
    atomic_fetch_add(&kernels->libraries, 1);
    orion_kernels_forget_module(kernels);
}

/* Copies the beginning of the name with that hash. False: the name is no longer in the table. Searches the whole
 * table. */
bool orion_kernel_text(struct orion_kernels *kernels, uint64_t name, char *text, size_t size);

/* How many SMs a grid fills: its blocks divided by the blocks that one SM can run at once, limited to the number of SMs
 * of the current context's device. 0: unknown. */
uint32_t orion_kernel_need(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes);

/* Whether the grid has more blocks than any GPU of the process can run at once, by the occupancy on the current
 * context's device. Then its blocks cannot all wait for each other, as some begin only after others have ended. False:
 * it has not, or that is unknown. Clusters can only lower the number of blocks that run at once, so true is right for a
 * launch with clusters, too. */
bool orion_kernel_exceeds_gpu(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes);

/* Every part of the SMs that the driver makes can run clusters of this many blocks, which each GPU with clusters can run.
 * Larger ones need particular SMs, and the driver may refuse their launch (CUDA_ERROR_INVALID_CLUSTER_SIZE). */
#define ORION_CLUSTER_PORTABLE 8u
/* How many blocks a cluster of the attribute's shape has; at most 1: there are no clusters. A program may pass any numbers, and their
 * product may not fit into 64 bits. */
static inline double orion_blocks_of_cluster(const CUlaunchAttributeValue *shape)
{
    return (double)shape->clusterDim.x * shape->clusterDim.y * shape->clusterDim.z;
}
/* How many parameters a kernel has. SIZE_MAX: the driver does not say (before CUDA 13.2), so they are asked for until it refuses. */
static inline size_t orion_parameters_of_function(CUfunction function)
{
    size_t count;
    bool known = orion_driver.cuFuncGetParamCount != NULL && orion_driver.cuFuncGetParamCount(function, &count) == CUDA_SUCCESS;
    return known ? count : SIZE_MAX;
}
static inline size_t orion_parameters_of_kernel(CUkernel kernel)
{
    size_t count;
    bool known = orion_driver.cuKernelGetParamCount != NULL && orion_driver.cuKernelGetParamCount(kernel, &count) == CUDA_SUCCESS;
    return known ? count : SIZE_MAX;
}

/* Whether the kernel was compiled for larger clusters. A launch can also ask for them: interposition/launched.h. */
bool orion_kernel_has_large_clusters(const void *function);

#endif
