/* Virtual GPUs: a GPU for each client that is threads of this process, in pages that the process makes itself.
 *
 * Gate, window, learnt durations, busy word and linger work on GPUs and know nothing of agents, so a client of threads
 * is a GPU whose policy and grant this process writes, and whose neighbours are the other clients' busy pages, which
 * lie in a row, by client. No membership, no descriptors; an hp client's GPU has its thread (thread.c), which ends
 * lingers, and a be client's needs none. Made once and used again by the next scheduler: a thread that still holds a
 * GPU never meets an unmapped page.
 *
 * There is no valve (valve.h) on a virtual GPU: all clients share a context, and a stream that waits on the GPU for hp
 * would hold up every call of hp's that waits for the whole context, such as a free or the first launch of a kernel that
 * is loaded lazily: hp would wait for be, and be for hp. be launches wait on the CPU. */
#ifndef ORION_VIRTUAL_GPU_H
#define ORION_VIRTUAL_GPU_H

#include "orion/inprocess.h"
#include "process/gpu.h"

struct orion_process;

struct orion_client_pages {
    struct orion_policy_page policy;
    struct orion_grant_page grant[ORION_CLIENTS_MOST];
    struct orion_busy_page busy[ORION_CLIENTS_MOST]; /* the neighbours of all: place == client */
    struct orion_record_page record[ORION_CLIENTS_MOST];
};

/* All of these under the scheduler's lock. */

/* GPUs for clients 0..count-1, without roles. -1: no memory, or no room among the process's GPUs. */
int orion_virtual_gpus_make(struct orion_process *process, uint32_t count);

/* Who is hp and who be, by client: into GPUs, counts, lists of neighbours and grants. */
void orion_virtual_gpus_join(struct orion_process *process, const uint32_t *roles, uint32_t count);

void orion_virtual_gpus_set_policy(struct orion_process *process, uint32_t kind, uint32_t max_slowdown_milli);

/* Nobody is managed by them any more. Their stream records have ended. */
void orion_virtual_gpus_leave(struct orion_process *process);

#endif
