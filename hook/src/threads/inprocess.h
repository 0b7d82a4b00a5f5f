/* The scheduler of clients that are threads of one process (orion/inprocess.h), and the binding of threads to clients.
 *
 * The scheduler adds no thread to the launch path. A program binds a thread to a client; a thread-local variable
 * records the binding. For each client the hook has a virtual GPU: the state that it otherwise has for a GPU
 * (virtual_gpu.h). So the launches of a bound thread pass the same gate as those of a process. The hook moves calls on
 * the default stream to the client's own stream, which it makes for the client (redirect.h). */
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

struct orion_inprocess { /* part of struct orion_mapping, which is wiped in a forked child */
    _Atomic uint32_t lock;
    uint32_t starts;
    _Atomic uint32_t clients;
    _Atomic int32_t device;             /* CUdevice + 1 of the first context that a client used; 0: none yet */
    uint32_t roles[ORION_CLIENTS_MOST]; /* guarded by the lock */
    struct orion_client_pages *pages;
    struct orion_gpu *gpus[ORION_CLIENTS_MOST];
};
ORION_PART(inprocess)

/* The calling thread's binding. A binding to an earlier scheduler, or to a forked parent's, has another generation. */
struct orion_binding {
    uint32_t client; /* number of the client, + 1; 0: none */
    uint32_t generation;
    /* A cache of the client's own stream, and the context and epoch (of contexts and roles) for which it is valid: see redirect.c */
    CUcontext context;
    CUstream stream;
    uint32_t epoch;
};
extern _Thread_local struct orion_binding orion_binding;

/* Starts a scheduler; 0, or -1 with an error message. See orion_start_scheduler. */
int orion_inprocess_start(int clients);

/* Whether `device` is the scheduler's GPU. A scheduler manages one GPU: the one on which a client first used a
 * stream. */
bool orion_inprocess_is_on_its_gpu(struct orion_process *process, CUdevice device);

/* The owner of a stream while a scheduler runs: the GPU of the client whose own stream it is; else the GPU of the
 * client that the calling thread is bound to. */
struct orion_gpu *orion_owner_by_client(struct orion_process *process, CUstream stream, CUdevice device);

bool orion_inprocess_has(struct orion_process *process, int client);

/* Returns the process if its scheduler runs and has that client. Otherwise sets the error message and returns NULL. */
struct orion_process *orion_inprocess_with(int client);

/* Stores and logs the error message of a failed call; returns -1. */
__attribute__((format(printf, 1, 2))) int orion_inprocess_fail(const char *format, ...);

/* Takes the scheduler's lock and returns the process; NULL: no scheduler runs, and the lock is free. */
struct orion_process *orion_inprocess_locked(void);
void orion_inprocess_lock(struct orion_process *process);
void orion_inprocess_unlock(struct orion_process *process);

#endif
