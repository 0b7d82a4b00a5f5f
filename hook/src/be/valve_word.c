#include "be/valve_word.h"

#include "be/gate.h"
#include "be/overlap.h"
#include "be/state.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/system.h"

void orion_valve_word_open(struct orion_valve *valve) { atomic_store(valve->page.words, 0); }

void orion_valve_word_close(struct orion_process *process, struct orion_valve *valve)
{
    if (atomic_load(&process->untouchable) > 0) return;
    /* The new value is never 0, and never a value that a watcher may have just read. */
    uint32_t closed = atomic_fetch_add(&valve->closings, 2) | 1;
    uint32_t before = atomic_load(valve->page.words);
    /* The epoch grows first: a thread that sees the valve closed must see that its stream record needs a new wait. */
    do {
        if (before == 0) atomic_fetch_add(&valve->epoch, 1);
    } while (!atomic_compare_exchange_weak(valve->page.words, &before, closed));
    if (before == 0) atomic_store_explicit(&valve->closed_ns, orion_now(), memory_order_relaxed);
    if (atomic_load(&process->untouchable) > 0) orion_valve_word_open(valve); /* a context began to end between the two checks */
}

bool orion_valve_word_open_if_idle(struct orion_gpu *gpu)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint32_t closed = valve->page.words != NULL ? atomic_load(valve->page.words) : 0;
    if (orion_gate_closed(gpu) && !orion_overlap_is_permitted(gpu)) return false;
    if (closed != 0 && atomic_compare_exchange_strong(valve->page.words, &closed, 0))
        atomic_store_explicit(&valve->opened_ns, orion_now(), memory_order_relaxed);
    return true;
}
