/* The table of the kernels that the program has launched. A key consists of name, grid, block and dynamic shared
 * memory, which decide a kernel's duration.
 *
 * The number of kernels is bounded. The durations of each kernel are a histogram with buckets 3 % wide. Rejected:
 * keeping every launch (a night of training has a thousand million launches), and keeping a few samples (their 95th
 * percentile is random). The caller holds a lock. */
#ifndef ORION_PROFILER_KERNELS_H
#define ORION_PROFILER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti.h"

#define PROFILER_KERNELS 4096u
#define PROFILER_STEPS 32u       /* buckets per octave */
#define PROFILER_FIRST_OCTAVE 8u /* the first bucket starts at 256 ns */
#define PROFILER_OCTAVES 26u     /* the last ends at 17 s */
#define PROFILER_BUCKETS (PROFILER_STEPS * PROFILER_OCTAVES)

struct profiler_kernel {
    char *name; /* mangled; NULL: this entry is free */
    uint64_t hash;
    int32_t grid[3], block[3], dynamic_shared, static_shared;
    uint32_t registers, device;
    uint64_t launches, timed; /* timed: launches with a known duration */
    uint64_t total_ns, shortest_ns, longest_ns;
    uint32_t buckets[PROFILER_BUCKETS];
};

struct profiler_kernels {
    struct profiler_kernel *kernels;      /* PROFILER_KERNELS entries, in the order of first launch */
    uint16_t table[2 * PROFILER_KERNELS]; /* hash table: index + 1, or 0 */
    uint32_t count;
    uint64_t records, unplaced, unplaced_ns; /* unplaced: launches of kernels for which the table has no entry */
};

bool profiler_kernels_open(struct profiler_kernels *kernels);

/* Counts one launch; returns the kernel's index, or PROFILER_KERNELS if the table is full. */
uint32_t profiler_kernels_add(struct profiler_kernels *kernels, const struct cupti_kernel *record);

/* The bucket of a duration, and the start of each bucket; PROFILER_BUCKETS gives the end of the last. */
uint32_t profiler_bucket(uint64_t ns);
uint64_t profiler_bucket_begin(uint32_t bucket);

#endif
