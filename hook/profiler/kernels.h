/* The kernels seen so far, by what makes their duration: name, grid, block, dynamic shared memory.
 *
 * Bounded: so many kernels, and of each its durations as a histogram whose buckets are 3 % wide. Keeping every launch
 * was refused (a night of training has a thousand million), as was a sample of a few (its 95th percentile is luck).
 * Guarded by the caller. */
#ifndef ORION_PROFILER_KERNELS_H
#define ORION_PROFILER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti.h"

#define PROFILER_KERNELS 4096u
#define PROFILER_STEPS 32u            /* buckets an octave */
#define PROFILER_FIRST_OCTAVE 8u      /* the first bucket begins at 256 ns */
#define PROFILER_OCTAVES 26u          /* the last ends at 17 s */
#define PROFILER_BUCKETS (PROFILER_STEPS * PROFILER_OCTAVES)

struct profiler_kernel {
    char *name;                       /* mangled; NULL: this place is free */
    uint64_t hash;
    int32_t grid[3], block[3], dynamic_shared, static_shared;
    uint32_t registers, device;
    uint64_t launches, timed;         /* timed: those whose duration is known */
    uint64_t total_ns, shortest_ns, longest_ns;
    uint32_t buckets[PROFILER_BUCKETS];
};

struct profiler_kernels {
    struct profiler_kernel *kernels;  /* PROFILER_KERNELS of them, in the order in which they were first seen */
    uint16_t places[2 * PROFILER_KERNELS]; /* hash table: index + 1, or 0 */
    uint32_t count;
    uint64_t records, unplaced, unplaced_ns; /* unplaced: launches of kernels for which there was no room */
};

bool profiler_kernels_open(struct profiler_kernels *kernels);

/* Counts one launch; returns the kernel's index, or PROFILER_KERNELS if there was no room. */
uint32_t profiler_kernels_add(struct profiler_kernels *kernels, const struct cupti_kernel *record);

/* The bucket of a duration, and where buckets begin; bucket PROFILER_BUCKETS begins where the last ends. */
uint32_t profiler_bucket(uint64_t ns);
uint64_t profiler_bucket_begin(uint32_t bucket);

#endif
