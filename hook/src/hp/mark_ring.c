#include "hp/mark_ring.h"

#include <stddef.h>

#define STRIDE_MOST (1u << 20)
#define ROUND_OF_STALL 2u /* a round of the ring within half of the stall time: marks may be further apart */
#define GAP_OF_STALL 4u   /* a quarter of the stall time between two completions: marks must be closer */

uint32_t orion_mark_ring_stride(const struct orion_mark_ring *ring)
{
    uint32_t stride = atomic_load_explicit(&ring->stride, memory_order_relaxed);
    return stride != 0 ? stride : 1;
}

/* A change that another thread overwrites is lost, which only makes the next change later. */
static void set_stride(struct orion_mark_ring *ring, uint32_t stride)
{
    atomic_store_explicit(&ring->stride, stride, memory_order_relaxed);
}

static bool own(struct orion_mark *mark, uint32_t from)
{
    return atomic_compare_exchange_strong_explicit(&mark->state, &from, ORION_MARK_OWNED, memory_order_acquire,
                                                   memory_order_relaxed);
}

bool orion_mark_own(struct orion_mark *mark)
{
    return atomic_load_explicit(&mark->state, memory_order_relaxed) == ORION_MARK_PENDING && own(mark, ORION_MARK_PENDING);
}

void orion_mark_give(struct orion_mark *mark, enum orion_mark_state state) { atomic_store(&mark->state, state); }

bool orion_mark_is_proven(const struct orion_mark *mark)
{
    return atomic_load_explicit(&mark->stream_record->drained, memory_order_relaxed) >= mark->returned;
}

static bool is_newer(const struct orion_mark *mark, const struct orion_mark *than, bool of_its_stream)
{
    if (of_its_stream) return mark->stream_record == than->stream_record && mark->returned > than->returned;
    return mark->recorded_ns > than->recorded_ns || (mark->recorded_ns == than->recorded_ns && mark > than);
}

/* Chooses every second mark, from the newest on, which stays: of each stream, or of all streams together. Returns how
 * many. */
static uint32_t choose(struct orion_mark *const *owned, uint32_t count, bool *dropped, bool of_each_stream)
{
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        dropped[i] = false;
        for (uint32_t j = 0; j < count; j++)
            if (is_newer(owned[j], owned[i], of_each_stream)) dropped[i] = !dropped[i];
        chosen += dropped[i];
    }
    return chosen;
}

/* Drops every second mark of each stream. With so many streams that few marks would go, and those that stay would be the
 * last ones of their streams, it drops every second mark of all streams: a completion in any stream shows progress.
 * Returns one of the entries of dropped marks; the others become free. */
static struct orion_mark *thin(struct orion_mark_ring *ring)
{
    struct orion_mark *owned[ORION_MARKS], *taken = NULL;
    bool dropped[ORION_MARKS];
    uint32_t count = 0, stride = orion_mark_ring_stride(ring);
    for (uint32_t i = 0; i < ORION_MARKS; i++)
        if (orion_mark_own(&ring->mark[i])) owned[count++] = &ring->mark[i];
    if (choose(owned, count, dropped, true) < ORION_MARKS / 3 && count > ORION_MARKS / 2) choose(owned, count, dropped, false);
    for (uint32_t i = 0; i < count; i++) {
        if (dropped[i] && taken == NULL) taken = owned[i];
        else orion_mark_give(owned[i], dropped[i] ? ORION_MARK_FREE : ORION_MARK_PENDING);
    }
    /* With few marks here, another thread thins the ring at this moment. */
    if (count > ORION_MARKS / 2 && stride < STRIDE_MOST) set_stride(ring, stride * 2);
    return taken;
}

static void grow(struct orion_mark_ring *ring, const struct orion_mark *first, uint64_t now, uint64_t stall_ns)
{
    uint32_t stride = orion_mark_ring_stride(ring);
    if (first->recorded_ns == 0 || now - first->recorded_ns > stall_ns / ROUND_OF_STALL) return;
    if (stride < ORION_MARK_STRIDE) set_stride(ring, stride * 2);
}

struct orion_mark *orion_mark_ring_take(struct orion_mark_ring *ring, uint64_t now, uint64_t stall_ns)
{
    for (uint32_t tries = 0; tries < ORION_MARKS; tries++) {
        uint32_t at = atomic_fetch_add_explicit(&ring->next, 1, memory_order_relaxed) % ORION_MARKS;
        struct orion_mark *mark = &ring->mark[at];
        if (orion_mark_own(mark)) {
            if (!orion_mark_is_proven(mark)) {
                orion_mark_give(mark, ORION_MARK_PENDING);
                continue;
            }
        } else if (!own(mark, ORION_MARK_FREE)) {
            continue;
        }
        if (at == 0) grow(ring, mark, now, stall_ns);
        return mark;
    }
    return thin(ring);
}

void orion_mark_ring_completed(struct orion_mark_ring *ring, uint64_t recorded_ns, uint64_t now, uint64_t stall_ns)
{
    uint64_t before = atomic_exchange_explicit(&ring->completed_ns, now, memory_order_relaxed);
    uint64_t since = before > recorded_ns ? before : recorded_ns;
    uint32_t stride = orion_mark_ring_stride(ring);
    if (now > since && now - since > stall_ns / GAP_OF_STALL && stride > 1) set_stride(ring, stride / 2);
}

void orion_mark_ring_relax(struct orion_mark_ring *ring)
{
    if (orion_mark_ring_stride(ring) > ORION_MARK_STRIDE) set_stride(ring, ORION_MARK_STRIDE);
}
