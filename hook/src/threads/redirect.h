/* Default streams of threads that are bound to a client: each call that names one is made on the client's own stream.
 *
 * The own stream is a non-blocking one with the client's priority (hp the greatest of the device, be the least). Blocking
 * ones were refused: whatever any thread put on the legacy stream would make every client wait for every other one. What
 * programs rely on of the legacy stream is kept within a client: its calls are in one order, the copies without a stream
 * are made on its own stream and waited for, and binding a thread puts the client's stream behind what is on the legacy
 * stream at that moment, unbinding puts the legacy stream behind the client's.
 *
 * cuCtxSynchronize becomes a wait for the client's own streams: hp must not wait for be's work, nor be for the next
 * request of hp. */
#ifndef ORION_REDIRECT_H
#define ORION_REDIRECT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "threads/inprocess.h"

struct orion_process;

CUstream orion_own_stream(CUstream instead_of); /* the calling thread's client's; as it was where there is none */

/* The stream of a client in the current context, made at first use; NULL: no context, another GPU, or it cannot be made. */
CUstream orion_stream_of_client(struct orion_process *process, uint32_t client);

/* One thread-local load for a thread that is bound to no client. */
static inline bool orion_redirects(CUstream stream)
{
    return __builtin_expect(orion_binding.client != 0, 0) && (uintptr_t)stream <= 2;
}
static inline CUstream orion_redirected(CUstream stream) { return orion_redirects(stream) ? orion_own_stream(stream) : stream; }

/* For a call that does on a stream what another one does without: waits for it if it succeeded. */
CUresult orion_finished(CUstream own, CUresult submitted);

/* Around a call that the driver makes on the legacy stream alone: what the client has queued is over before it, and the
 * call when it returns. */
void orion_before_legacy(void);
void orion_after_legacy(void);

/* For a context-wide synchronise. False: it is not to be replaced. */
bool orion_synchronised_client(CUcontext context, CUresult *result);

/* Puts one of the two streams behind what the other one holds now. Nothing while the process captures: a capture would
 * be spoilt. */
enum orion_handover { ORION_BEHIND_LEGACY, ORION_AHEAD_OF_LEGACY };
void orion_hand_over(CUstream own, enum orion_handover direction);

#endif
