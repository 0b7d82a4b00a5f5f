/* The valve's word: what the GPU waits for. Any thread may close it; the watcher (valve.c) opens it. */
#ifndef ORION_VALVE_WORD_H
#define ORION_VALVE_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "be/valve.h"

static inline bool orion_valve_word_is_closed(const struct orion_valve *valve)
{
    return valve->page.words != NULL && atomic_load(valve->page.words) != 0;
}

void orion_valve_word_open(struct orion_valve *valve);

/* Does not close while a context ends, because the context's streams must finish. */
void orion_valve_word_close(struct orion_process *process, struct orion_valve *valve);

/* Opens the valve if hp is idle, unless another thread has found hp busy since this check began. Returns false if hp is
 * busy. If hp's owner grants a budget while work is behind the valve, hp's permission to overlap also opens the valve
 * for this work. */
bool orion_valve_word_open_if_idle(struct orion_gpu *gpu);

#endif
