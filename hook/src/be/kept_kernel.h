/* The parameters of kernels that the hook keeps for graph_parameters.h, and what nearly all updates do with them: the same
 * kernel gets other arguments. An update of a graph calls these functions for each of its nodes, so they are inline. */
#ifndef ORION_KEPT_KERNEL_H
#define ORION_KEPT_KERNEL_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "be/argument_layout.h"
#include "learning/kernels.h"
#include "process/process.h"

struct orion_kept {
    const struct orion_layout *layout;  /* of a kernel */
    uint32_t epoch;                     /* of the layout, when the kernel was set */
    _Alignas(16) unsigned char bytes[]; /* the driver's structure; behind that of a kernel, its layout->bytes of arguments */
};

#define ORION_ARGUMENTS_AT ((sizeof(CUDA_KERNEL_NODE_PARAMS) + 15) & ~(size_t)15)

static inline CUDA_KERNEL_NODE_PARAMS *orion_kept_kernel(struct orion_kept *kept)
{
    return (CUDA_KERNEL_NODE_PARAMS *)(void *)kept->bytes;
}

static inline uint64_t orion_word_at(const void *of, size_t offset)
{
    uint64_t word;
    memcpy(&word, (const char *)of + offset, sizeof word);
    return word;
}

/* The structure begins with the function, the grid and the block: four words without gaps. The driver reads kernel and context only
 * where there is no function, but writes all three for a node (seen on an H200). */
static inline bool orion_same_shape(const CUDA_KERNEL_NODE_PARAMS *a, const CUDA_KERNEL_NODE_PARAMS *b)
{
    _Static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes) == 32, "a function, and six numbers of four bytes");
    uint64_t differences = (orion_word_at(a, 0) ^ orion_word_at(b, 0)) | (orion_word_at(a, 8) ^ orion_word_at(b, 8)) |
                           (orion_word_at(a, 16) ^ orion_word_at(b, 16)) | (orion_word_at(a, 24) ^ orion_word_at(b, 24)) |
                           (a->sharedMemBytes ^ b->sharedMemBytes);
    return differences == 0 && (a->func != NULL || a->kern == b->kern);
}

/* Whether at most the arguments differ from those that are kept, and orion_keep_arguments can keep them. A CUkernel that names
 * no context runs in the current one, which is not read here. */
static inline bool orion_only_arguments_differ(const struct orion_process *process, struct orion_kept *kept,
                                               const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    if (kept == NULL || kept->epoch != atomic_load_explicit(&orion_kernels(process)->epoch, memory_order_acquire)) return false;
    const CUDA_KERNEL_NODE_PARAMS *before = orion_kept_kernel(kept);
    return orion_same_shape(before, kernel) && (kernel->func != NULL || (kernel->ctx != NULL && before->ctx == kernel->ctx)) &&
           kernel->kernelParams != NULL && kept->layout->count > 0;
}

bool orion_keep_argument(unsigned char *kept, const void *argument, uint32_t size);

/* Copies the arguments of the kernel. True: one of them differed. */
static inline bool orion_keep_arguments(struct orion_kept *kept, void *const *given)
{
    uint64_t differences = 0;
    const struct orion_argument *argument = kept->layout->argument, *end = argument + kept->layout->count;
    for (; argument != end; argument++, given++) {
        unsigned char *before = kept->bytes + ORION_ARGUMENTS_AT + argument->offset;
        if (__builtin_expect(argument->size != sizeof(uint64_t), 0)) {
            differences |= orion_keep_argument(before, *given, argument->size);
            continue;
        }
        uint64_t now = orion_word_at(*given, 0); /* nearly all arguments are pointers or numbers of 8 bytes */
        differences |= now ^ orion_word_at(before, 0);
        memcpy(before, &now, sizeof now);
    }
    return differences != 0;
}

#endif
