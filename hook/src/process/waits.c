#include "process/waits.h"

#include "system/system.h"

void orion_waits_note(struct orion_gpu *gpu, uint64_t waited_ns)
{
    struct orion_record_page *record = gpu->record;
    uint64_t microseconds = waited_ns / ORION_MICROSECOND;
    unsigned bucket = microseconds == 0 ? 0 : 64u - (unsigned)__builtin_clzll(microseconds);
    if (bucket >= ORION_WAIT_BUCKETS) bucket = ORION_WAIT_BUCKETS - 1;
    atomic_fetch_add_explicit(&record->wait_bucket[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&record->gated_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&record->gated_ns, waited_ns, memory_order_relaxed);
}
