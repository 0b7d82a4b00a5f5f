/* Clients as threads of one process: C entry points of the preloaded hook.
 *
 *     orion_start_scheduler(2);           clients 0 (be) and 1 (hp)
 *     in each thread: orion_set_client_idx(0 or 1); then plain CUDA, with the default stream or others
 *     orion_stop_scheduler();             when the clients' work is done
 *
 * For a thread that is bound to a client, the client's own stream replaces the default stream (both the legacy and the
 * per-thread one), and cuCtxSynchronize waits for the client's streams only. A stream belongs to the client whose
 * thread used it first, whichever thread uses it later. Calls of unbound threads pass through. A scheduler manages one
 * GPU.
 *
 * The hook must be preloaded: set LD_PRELOAD to liborion_hook.so before CUDA is loaded, or use `orion launch`. A
 * program that must also run without the hook declares the functions weak or looks them up with dlsym. A function
 * returns 0, or -1 with an error message in orion_scheduler_error(). Any thread may call the functions. Call
 * orion_start_scheduler and orion_stop_scheduler only while no client has work in progress.
 *
 * Environment: ORION_HP_CLIENT is the number of the hp client (default: the last one). ORION_LOG_LEVEL selects what the
 * hook writes to standard error: 1 errors, 2 warnings (the default), 3 events, 4 every stream and wait. The hook reads
 * both when it is loaded. A program that chooses hp itself calls orion_set_client_role. */
#ifndef ORION_INPROCESS_H
#define ORION_INPROCESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ORION_CLIENTS_MOST 12

enum orion_client_role { ORION_CLIENT_HP = 1, ORION_CLIENT_BE = 2 };

/* What a be client's launch waits for. The numbers are those of enum orion_policy_kind. */
enum orion_scheduler_policy {
    ORION_SCHEDULER_NONE = 0,  /* nothing */
    ORION_SCHEDULER_GATE = 1,  /* until hp is idle */
    ORION_SCHEDULER_ORION = 2, /* until hp is idle or max_slowdown allows overlap; the default, with max_slowdown 1 */
};

int orion_start_scheduler(int clients);
int orion_set_client_role(int client, int role); /* only before the client's first work */
int orion_set_client_idx(int client);            /* binds the calling thread to the client; -1: unbinds it */

/* max_slowdown_milli: hp's work may take this many times as long as without overlap, in thousandths; at least 1000 (no
 * overlap). */
int orion_set_policy(int policy, uint32_t max_slowdown_milli);

/* Waits for all clients' work, and unbinds their threads. */
int orion_stop_scheduler(void);

/* The client's own stream, a CUstream, in the calling thread's current context. NULL: there is no current context, or
 * it is on another GPU. */
void *orion_client_stream(int client);

/* All times are in nanoseconds. `size` is sizeof the caller's structure. Only its first `size` bytes are written, so a
 * program that was compiled with an older, shorter structure still works. */
struct orion_client_figures {
    uint32_t role, reserved;
    uint64_t launches, gated_launches, gated_ns, window_waits, window_wait_ns, overlapped_launches, overlapped_ns;
    uint64_t busy_ns, busy_periods, gpu_ns, in_flight_ns;
};
int orion_client_figures(int client, struct orion_client_figures *figures, size_t size);

/* Why the last failed call of the calling thread failed. */
const char *orion_scheduler_error(void);

#ifdef __cplusplus
}
#endif

#endif
