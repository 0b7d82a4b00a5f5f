/* Clients as threads of one process: C entry points of the preloaded hook.
 *
 *     orion_start_scheduler(2);           clients 0 (be) and 1 (hp)
 *     in each thread: orion_set_client_idx(0 or 1); then plain CUDA, default stream or others
 *     orion_stop_scheduler();             when their work is done
 *
 * A thread that is bound to a client has that client's stream for a default stream (legacy and per-thread alike), and
 * cuCtxSynchronize waits for its client's streams alone. A stream belongs to the client whose thread used it first, and
 * stays there whichever thread uses it later. Threads bound to no client pass through. One GPU a scheduler.
 *
 * The hook has to be preloaded: LD_PRELOAD of liborion_hook.so before CUDA is loaded, and `orion launch` does so. Declare
 * the functions weak, or look them up by dlsym, to run without it, too. Functions return 0, or -1 with a sentence in
 * orion_scheduler_error(). Any thread may call them; start and stop while no client has work under way.
 *
 * Environment: ORION_HP_CLIENT, the number of the hp client (else the last one); ORION_LOG_LEVEL, what is written to
 * standard error: 1 errors, 2 warnings (the default), 3 what happens, 4 every stream and wait. */
#ifndef ORION_INPROCESS_H
#define ORION_INPROCESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ORION_CLIENTS_MOST 12

enum orion_client_role { ORION_CLIENT_HP = 1, ORION_CLIENT_BE = 2 };

/* What a be client's launch waits for; the numbers are those of enum orion_policy_kind. */
enum orion_scheduler_policy {
    ORION_SCHEDULER_NONE = 0,  /* nothing */
    ORION_SCHEDULER_GATE = 1,  /* hp idle */
    ORION_SCHEDULER_ORION = 2, /* hp idle, or room in the budget max_slowdown: the default, at a budget of 1 (no overlap) */
};

int orion_start_scheduler(int clients);
int orion_set_client_role(int client, int role); /* before the client's first work */
int orion_set_client_idx(int client);            /* binds the calling thread; -1: to none */

/* max_slowdown_milli: how much longer hp's work may take than without overlap, in thousandths, at least 1000. */
int orion_set_policy(int policy, uint32_t max_slowdown_milli);

/* Waits for all clients' work, and unbinds their threads. */
int orion_stop_scheduler(void);

/* The client's own stream in the calling thread's current context, a CUstream; NULL without one, or on another GPU. */
void *orion_client_stream(int client);

/* Times are nanoseconds. A caller that is older than the hook gets the first `size` bytes. */
struct orion_client_figures {
    uint32_t role, reserved;
    uint64_t launches, gated_launches, gated_ns, window_waits, window_wait_ns, overlapped_launches, overlapped_ns;
    uint64_t busy_ns, busy_periods, gpu_ns, in_flight_ns;
};
int orion_client_figures(int client, struct orion_client_figures *figures, size_t size);

/* Why the calling thread's last failed call failed. */
const char *orion_scheduler_error(void);

#ifdef __cplusplus
}
#endif

#endif
