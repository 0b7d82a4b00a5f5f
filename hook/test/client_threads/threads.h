/* What the scenarios share: the hook's entry points, a kernel, and threads that are bound to clients. scenarios.h lists
 * the scenarios. */
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

/* -- The hook's entry points: look_up finds them, because the program is not linked with the hook ---------------------- */

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
void initialise_kernel(void); /* loads `timed` into the current context */
void initialise(void);        /* retains the primary context and loads `timed` into it; call it again after a reset */

/* Launches a kernel on fewer than half of the SMs, so that two such kernels can run at the same time. */
void launch(CUstream stream, uint64_t milliseconds);

uint64_t now(void); /* nanoseconds */

/* -- Threads ------------------------------------------------------------------------------------------------------------ */

/* Runs a body in a separate thread, bound to a client (-1: to none). */
pthread_t in_thread(int client, void (*body)(void));
void all_of(int client, void (*body)(void)); /* the same, and waits until the body has ended */

/* Bodies that several scenarios use. be_runs stores the time of its end in marks[0], hp_ends in marks[1] (nanoseconds).
 * To check that be waited for hp, compare marks[0] with hp_worked_until: hp's work cannot end before that time.
 * marks[1] can be later than marks[0] even then, because on a loaded machine hp's thread may run after be's. */
extern uint64_t marks[3], hp_worked_until;
void hp_begins(void);
void hp_ends(void);
void be_runs(void);

#endif
