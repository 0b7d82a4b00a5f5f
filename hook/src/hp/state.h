/* What an hp client keeps for each GPU, in the bytes that struct orion_gpu reserves for it. */
#ifndef ORION_HP_STATE_H
#define ORION_HP_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "hp/budget.h"
#include "hp/linger.h"
#include "process/gpu.h"

struct orion_hp {
    /* See busy.c */
    _Atomic uint32_t closing, close_wanted;
    _Atomic uint64_t busy_since_ns;
    _Atomic uint64_t typical_busy_ns; /* the typical length of busy periods; written by the thread that closes */
    struct orion_linger linger;
    struct orion_budget budget;  /* see budget.c */
    _Atomic uint64_t seen_begun; /* used only by hp's thread: work begun at its last check */
    _Atomic uint64_t asked_ns;   /* used only by hp's thread: when it last asked for a proof */

    /* See drain.c */
    _Atomic uint32_t drain_requested; /* a request to find out whether work is complete that no call waits for */
    _Atomic uint32_t drain_thread;    /* 0: not started, 1: runs */
    _Atomic uint32_t drain_notifier;  /* a private futex */
};
_Static_assert(sizeof(struct orion_hp) <= ORION_GPU_HP, "ORION_GPU_HP is too small");

static inline struct orion_hp *orion_hp(const struct orion_gpu *gpu) { return (struct orion_hp *)(uintptr_t)gpu->hp; }

#endif
