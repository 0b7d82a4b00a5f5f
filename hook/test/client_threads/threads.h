/* Threads of one process as clients: what the scenarios share. A scenario is a function that checks itself; the command
 * line names it. main.c lists them. */
#ifndef CLIENT_THREADS_H
#define CLIENT_THREADS_H

#include "check.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/inprocess.h"

#define MS 1000000u
#define BE 0
#define HP 1
#define DONE(call) CHECK((call) == CUDA_SUCCESS)

/* -- The hook's entry points, looked up, since only a preloaded hook has them ------------------------------------------ */

extern __typeof__(&orion_start_scheduler) start;
extern __typeof__(&orion_stop_scheduler) stop;
extern __typeof__(&orion_set_client_idx) bind_to;
extern __typeof__(&orion_set_client_role) set_role;
extern __typeof__(&orion_set_policy) set_policy;
extern __typeof__(&orion_client_stream) stream_of;
extern __typeof__(&orion_client_figures) ask_figures;
extern __typeof__(&orion_scheduler_error) last_error;

void look_up(void);
struct orion_client_figures figures(int client);

/* -- The device --------------------------------------------------------------------------------------------------------- */

extern CUfunction timed;
void initialise(void); /* the primary context, and `timed` in it; called again after a reset */

/* A kernel on fewer than half of the SMs, so that two can run at the same time. */
void launch(CUstream stream, uint64_t milliseconds);

uint64_t now(void); /* nanoseconds */

/* -- Threads ------------------------------------------------------------------------------------------------------------ */

/* Runs a body in a separate thread, bound to a client (-1: to none). */
pthread_t in_thread(int client, void (*body)(void));
void all_of(int client, void (*body)(void)); /* waits until the body has ended */

/* Bodies that several scenarios use, and when the scenario saw them complete: marks[0] be, marks[1] hp. hp's work was
 * not complete before hp_worked_until. On a loaded machine, hp's own mark may come after the mark of a be that hp
 * released. */
extern uint64_t marks[3], hp_worked_until;
void hp_begins(void);
void hp_ends(void);
void be_runs(void);

#endif
