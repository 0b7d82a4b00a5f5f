/* Redirects calls on default streams. The clients of a scheduler share one process, and the program binds each thread
 * to a client (inprocess.h). If a bound thread makes a call on a default stream, the hook makes the call on the
 * client's own stream instead, which the hook has created.
 *
 * The own stream is non-blocking and has the client's priority (hp: the greatest of the device; be: the least).
 * Rejected: blocking own streams, because one call on the legacy stream by any thread would make all clients of the
 * process wait for each other. Within a client, calls have the same order as on the legacy stream, also with the
 * client's blocking streams (streams/client_order.h). A copy that names no stream runs on the own stream, and the hook
 * waits for the copy. When the program binds a thread, the own stream waits for the work that is in the legacy stream at
 * that moment. When the program unbinds the thread, the legacy stream waits for the own stream.
 *
 * cuCtxSynchronize becomes a wait for the client's streams only: hp must not wait for be's work, and be must not wait
 * for hp's next request. */
#ifndef ORION_REDIRECT_H
#define ORION_REDIRECT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "threads/inprocess.h"

struct orion_process;

/* The own stream of the calling thread's client; `instead_of` if the thread has no client or the client has no own
 * stream. */
CUstream orion_own_stream(CUstream instead_of);

/* The client's own stream in the current context; the first call creates it. NULL: there is no context, the context is
 * on another GPU, or the stream cannot be created. ORION_NO_CLIENT: a blocking stream that stands for the legacy stream beside captures. */
CUstream orion_stream_of_client(struct orion_process *process, uint32_t client);

/* Whether the stream is a default stream that the hook replaces. In an unbound thread this costs one thread-local
 * load. */
static inline bool orion_redirects(CUstream stream)
{
    return __builtin_expect(orion_binding.client != 0, 0) && (uintptr_t)stream <= 2;
}
static inline CUstream orion_redirected(CUstream stream) { return orion_redirects(stream) ? orion_own_stream(stream) : stream; }

/* Ends a blocking call that was replaced by an asynchronous call on the own stream: waits for the stream if that call
 * succeeded. Returns the result. */
CUresult orion_finished(CUstream own, CUresult submitted);

/* Called before and after a call that the driver can make on the legacy stream only. orion_before_legacy waits until
 * the client's queued work has completed; orion_after_legacy waits until the call's work has completed. */
void orion_before_legacy(void);
void orion_after_legacy(void);

/* Synchronises the client's streams instead of the whole context. False: the caller must synchronise the whole
 * context. */
bool orion_synchronised_client(CUcontext context, CUresult *result);

/* Makes one of the two streams wait for the work that is in the other one now: the own stream for the legacy stream
 * (BEHIND), or the legacy stream for the own stream (AHEAD_OF). Does nothing while the own stream is being captured. */
enum orion_legacy_order { ORION_BEHIND_LEGACY, ORION_AHEAD_OF_LEGACY };
void orion_order_with_legacy(CUstream own, enum orion_legacy_order order);

/* Makes the legacy stream of each context in which the client has an own stream wait for that one. Not of a green context that is not
 * current, and not while another thread has been ending some context for long. */
void orion_legacy_follows_client(struct orion_process *process, uint32_t client);

#endif
