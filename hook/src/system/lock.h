/* A lock that a thread tries, or for which it sleeps: its holder may have lost the CPU to the very thread that waits. A fair
 * share of CPU time is not enough to rely on, because the program may run threads with real-time priority. Without contention it
 * is one instruction and no system call. */
#ifndef ORION_LOCK_H
#define ORION_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* 0: free; 1: held; 2: held, and somebody may wait. Taking it acquires, and giving it back releases. */
bool orion_lock_try(_Atomic uint32_t *lock);
void orion_lock(_Atomic uint32_t *lock);
void orion_unlock(_Atomic uint32_t *lock);

#endif
