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

uint64_t orion_waits_begin(struct orion_gpu *gpu)
{
    uint64_t now = orion_now();
    atomic_store_explicit(&gpu->record->waiting_since_ns, now, memory_order_relaxed);
    return now;
}

void orion_waits_end(struct orion_gpu *gpu, uint64_t began_ns)
{
    atomic_store_explicit(&gpu->record->waiting_since_ns, 0, memory_order_relaxed);
    orion_waits_note(gpu, orion_now() - began_ns);
}
