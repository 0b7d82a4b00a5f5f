/* Clients as threads of one process: what the scenarios share. A scenario is a function that checks itself and is named on
 * the command line; main.c lists them. */
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
void initialise(void); /* the primary context, and `timed` in it; once more after a reset */

/* A kernel of fewer than half of the SMs, so that two run side by side where they may. */
void launch(CUstream stream, uint64_t milliseconds);

uint64_t now(void); /* nanoseconds */

/* -- Threads ------------------------------------------------------------------------------------------------------------ */

/* Runs a body in a thread of its own, bound to a client (-1: to none). */
pthread_t in_thread(int client, void (*body)(void));
void all_of(int client, void (*body)(void)); /* to its end */

/* Bodies that several scenarios use, and when they were seen to be done: marks[0] be, marks[1] hp. What hp began was not
 * done before hp_worked_until: on a loaded machine hp's own mark may come after that of a be that it let go. */
extern uint64_t marks[3], hp_worked_until;
void hp_begins(void);
void hp_ends(void);
void be_runs(void);

#endif
