#include "kernels.h"

#include <stdlib.h>
#include <string.h>

bool profiler_kernels_open(struct profiler_kernels *kernels)
{
    /* 14 MB, of which only used pages become resident */
    kernels->kernels = calloc(PROFILER_KERNELS, sizeof *kernels->kernels);
    return kernels->kernels != NULL;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t hash_of(const struct cupti_kernel *record, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = name; *at != '\0'; at++) hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 3; i++) hash = mix(hash, (uint64_t)(uint32_t)record->grid[i] << 32 | (uint32_t)record->block[i]);
    return mix(hash, (uint32_t)record->dynamic_shared);
}

static bool is(const struct profiler_kernel *kernel, uint64_t hash, const struct cupti_kernel *record, const char *name)
{
    return kernel->hash == hash && !memcmp(kernel->grid, record->grid, sizeof kernel->grid) &&
           !memcmp(kernel->block, record->block, sizeof kernel->block) && kernel->dynamic_shared == record->dynamic_shared &&
           !strcmp(kernel->name, name);
}

static struct profiler_kernel *entry_of(struct profiler_kernels *kernels, const struct cupti_kernel *record)
{
    const uint32_t entries = 2 * PROFILER_KERNELS;
    const char *name = record->name != NULL ? record->name : "";
    uint64_t hash = hash_of(record, name);
    uint32_t at = (uint32_t)(hash % entries);
    for (; kernels->table[at] != 0; at = (at + 1) % entries)
        if (is(&kernels->kernels[kernels->table[at] - 1], hash, record, name)) return &kernels->kernels[kernels->table[at] - 1];
    struct profiler_kernel *kernel = &kernels->kernels[kernels->count];
    if (kernels->count == PROFILER_KERNELS || (kernel->name = strdup(name)) == NULL) return NULL;
    kernels->table[at] = (uint16_t)++kernels->count;
    kernel->hash = hash;
    memcpy(kernel->grid, record->grid, sizeof kernel->grid);
    memcpy(kernel->block, record->block, sizeof kernel->block);
    kernel->dynamic_shared = record->dynamic_shared;
    kernel->static_shared = record->static_shared;
    kernel->registers = record->registers;
    kernel->device = record->device;
    kernel->shortest_ns = UINT64_MAX;
    return kernel;
}

uint32_t profiler_bucket(uint64_t ns)
{
    if (ns < UINT64_C(1) << PROFILER_FIRST_OCTAVE) return 0;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(ns);
    uint32_t step = (uint32_t)(ns >> (octave - 5)) & (PROFILER_STEPS - 1);
    uint32_t bucket = (octave - PROFILER_FIRST_OCTAVE) * PROFILER_STEPS + step;
    return bucket < PROFILER_BUCKETS ? bucket : PROFILER_BUCKETS - 1;
}

uint64_t profiler_bucket_begin(uint32_t bucket)
{
    uint32_t octave = PROFILER_FIRST_OCTAVE + bucket / PROFILER_STEPS;
    return (uint64_t)(PROFILER_STEPS + bucket % PROFILER_STEPS) << (octave - 5);
}

uint32_t profiler_kernels_add(struct profiler_kernels *kernels, const struct cupti_kernel *record)
{
    bool timed = record->start != 0 && record->end >= record->start;
    uint64_t ns = timed ? record->end - record->start : 0;
    struct profiler_kernel *kernel = entry_of(kernels, record);
    kernels->records++;
    if (kernel == NULL) {
        kernels->unplaced++;
        kernels->unplaced_ns += ns;
        return PROFILER_KERNELS;
    }
    kernel->launches++;
    if (timed) {
        kernel->timed++;
        kernel->total_ns += ns;
        if (ns < kernel->shortest_ns) kernel->shortest_ns = ns;
        if (ns > kernel->longest_ns) kernel->longest_ns = ns;
        kernel->buckets[profiler_bucket(ns)]++;
    }
    return (uint32_t)(kernel - kernels->kernels);
}
