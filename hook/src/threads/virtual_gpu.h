/* Virtual GPUs: one struct orion_gpu for each client that consists of threads of this process. The process makes the
 * pages of a virtual GPU itself.
 *
 * Gate, window, learnt durations, busy word and linger need a struct orion_gpu, but no agent. So each client that
 * consists of threads gets a struct orion_gpu. This process writes the policy and the grant of each virtual GPU. The
 * neighbours of a virtual GPU are the other clients' busy pages, in an array with the client as index. A virtual GPU
 * has no membership and no descriptors. The virtual GPU of an hp client has a thread (thread.c), which ends lingers;
 * the virtual GPU of a be client needs no thread. The hook never frees virtual GPUs, and the next scheduler uses them
 * again, so a thread that still has a pointer to one never reads an unmapped page.
 *
 * A virtual GPU has no valve (valve.h), because all clients share a context. Some calls of hp wait for the whole
 * context, such as a free, or the first launch of a kernel that is loaded lazily. If a be stream waited on the GPU for
 * hp, such a call would wait for be while be waits for hp. So be launches wait on the CPU. */
#ifndef ORION_VIRTUAL_GPU_H
#define ORION_VIRTUAL_GPU_H

#include "orion/inprocess.h"
#include "process/gpu.h"

struct orion_process;

struct orion_client_pages {
    struct orion_policy_page policy;
    struct orion_grant_page grant[ORION_CLIENTS_MOST];
    struct orion_busy_page busy[ORION_CLIENTS_MOST]; /* the neighbours of all clients: client index == client */
    struct orion_record_page record[ORION_CLIENTS_MOST];
};

/* The caller of any of these holds the scheduler's lock. */

/* Makes virtual GPUs for clients 0..count-1, without roles. -1: no memory, or the process has too many GPUs. */
int orion_virtual_gpus_make(struct orion_process *process, uint32_t count);

/* Enters the clients' roles into the virtual GPUs, the counts of clients, the lists of neighbours and the grants. */
void orion_virtual_gpus_join(struct orion_process *process, const uint32_t *roles, uint32_t count);

void orion_virtual_gpus_set_policy(struct orion_process *process, uint32_t kind, uint32_t max_slowdown_milli);

/* Ends the management of all clients. The caller has ended their stream records. */
void orion_virtual_gpus_leave(struct orion_process *process);

#endif
