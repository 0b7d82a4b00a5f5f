/* The part of CUPTI that the profiler uses. The profiler loads CUPTI at run time; this file declares its types.
 *
 * Rejected: NVIDIA's headers. A build would need them, and their structures belong to one CUDA version, while the
 * workload's library may have another version. This file declares only the fields whose offsets never changed: from
 * CUDA 9 (144 bytes) to CUDA 13 (248 bytes), a kernel's record has only grown at its end. CUPTI itself steps from
 * record to record, so the profiler needs no record length. */
#ifndef ORION_PROFILER_CUPTI_H
#define ORION_PROFILER_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* CUptiResult */
       CUPTI_OK = 0,
       CUPTI_ANOTHER_SUBSCRIBER = 39,
};
enum { CUPTI_KIND_CONCURRENT_KERNEL = 10 }; /* records kernels, also those of graphs; they may still overlap */
enum { CUPTI_FLUSH_FORCED = 1 };            /* CUPTI also delivers buffers with unfinished records */

struct cupti_record { uint32_t kind; };

/* The first fields of CUpti_ActivityKernel4 and later. Times are nanoseconds; 0: unknown. */
struct cupti_kernel {
    uint32_t kind;
    uint8_t cache, shared_config;
    uint16_t registers; /* per thread */
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared, dynamic_shared; /* bytes per block */
    uint32_t local[2];
    uint32_t correlation; /* the launch's id; ids grow in launch order; all kernels of a graph launch have one id */
    int64_t grid_id;
    const char *name; /* mangled; CUPTI owns the string */
};
_Static_assert(offsetof(struct cupti_kernel, start) == 16 && offsetof(struct cupti_kernel, grid) == 52 &&
                   offsetof(struct cupti_kernel, correlation) == 92 && offsetof(struct cupti_kernel, name) == 104,
               "as in cupti_activity.h of CUDA 12.1, 12.9, 13.0 and 13.5");

typedef void cupti_requested(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void cupti_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef void cupti_called(void *data, uint32_t domain, uint32_t function, const void *parameters);

struct cupti {
    uint32_t (*subscribe)(void **subscriber, cupti_called *called, void *data);
    uint32_t (*register_callbacks)(cupti_requested *requested, cupti_completed *completed);
    uint32_t (*enable)(uint32_t kind);
    uint32_t (*flush_all)(uint32_t flag);
    uint32_t (*next_record)(uint8_t *buffer, size_t valid, struct cupti_record **record);
    uint32_t (*dropped_records)(void *context, uint32_t stream, size_t *dropped);
    uint32_t (*result_text)(uint32_t result, const char **text);
};

/* Finds the CUPTI library and subscribes to it. Tries in this order: the library that the process has already loaded
 * (torch's), the colon-separated paths `candidates` (may be NULL), the loader's search, the toolkit's folders. If no
 * library works, returns false and writes the reason to `why`. */
bool cupti_open(struct cupti *cupti, const char *candidates, char *why, size_t size);

/* Returns the next kernel in a buffer; NULL at the end. Skips records of other kinds. */
const struct cupti_kernel *cupti_next_kernel(const struct cupti *cupti, uint8_t *buffer, size_t valid, struct cupti_record **at);

#endif
