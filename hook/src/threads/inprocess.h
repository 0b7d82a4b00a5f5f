/* The scheduler of clients that are threads of one process (orion/inprocess.h): who is bound to which client.
 *
 * There is no thread in the launch path: a client is a virtual GPU (virtual_board.h), a bound thread finds it by two
 * thread-local words, and its launches pass the same gate as a process's would. */
#ifndef ORION_INPROCESS_STATE_H
#define ORION_INPROCESS_STATE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/inprocess.h"
#include "process/process.h"

struct orion_gpu;
struct orion_process;
struct orion_client_pages;

struct orion_inprocess { /* in the process's mapping, which a forked child finds wiped */
    _Atomic uint32_t lock;
    uint32_t starts;
    _Atomic uint32_t clients;
    _Atomic int32_t device;             /* CUdevice + 1 of the first context that a client used; 0: none yet */
    uint32_t roles[ORION_CLIENTS_MOST]; /* guarded by the lock */
    struct orion_client_pages *pages;
    struct orion_gpu *gpus[ORION_CLIENTS_MOST];
};
ORION_PART(inprocess)

/* The calling thread's binding. One of an earlier scheduler, or of a forked parent's, has another generation. */
struct orion_binding {
    uint32_t client; /* + 1; 0: none */
    uint32_t generation;
    /* The own stream that was fetched last: see redirect.c */
    CUcontext context;
    CUstream stream;
    uint32_t context_epoch;
};
extern _Thread_local struct orion_binding orion_binding;

/* Starts a scheduler; 0, or -1 with a sentence. See orion_start_scheduler. */
int orion_inprocess_start(int clients);

/* A scheduler is for one GPU: that of the first context in which a client used a stream. */
bool orion_inprocess_is_on_its_gpu(struct orion_process *process, CUdevice device);

/* The owner of streams while a scheduler runs: the GPU of the client that the stream belongs to, or else that the calling
 * thread is bound to. */
struct orion_gpu *orion_owner_by_client(struct orion_process *process, CUstream stream, CUdevice device);

bool orion_inprocess_has(struct orion_process *process, int client);

/* The process, if its scheduler runs and has that client; NULL: a sentence says which it is not. */
struct orion_process *orion_inprocess_with(int client);

/* Keeps and logs the sentence of a failed call; -1. */
__attribute__((format(printf, 1, 2))) int orion_inprocess_fail(const char *format, ...);

/* The process with its scheduler running and locked; NULL: none runs. */
struct orion_process *orion_inprocess_locked(void);
void orion_inprocess_lock(struct orion_process *process);
void orion_inprocess_unlock(struct orion_process *process);

#endif
