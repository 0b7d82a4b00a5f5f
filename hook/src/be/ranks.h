/* The ranks of a job: its processes, each on its own GPU, and the page in which they see one another (pages.h).
 *
 * A process alone uses a page of its own with the same layout, so the rules of collective.c are the same for GPUs of one
 * process and for GPUs of several processes. A rank of this process is `mine`; all others are *peers*.
 *
 * No process sees the hp clients of a peer's GPU. So each process writes into its rank whether hp is busy there, as a
 * lease: a peer that dies, is stopped or sleeps holds the others for no longer than ORION_RANK_LEASE_MS. The processes
 * of a job trust one another, but no word of a peer is an index, a length or a wait without end.
 *
 * Rejected: every process joins the slots of all GPUs of the job. It would see each hp at once, but each process would
 * have a thread and a client index for each GPU. */
#ifndef ORION_RANKS_H
#define ORION_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/pages.h"
#include "process/gpu.h"

struct orion_process;

struct orion_ranks {
    struct orion_job_page *_Atomic page; /* NULL: the process has launched no collective */
    struct orion_rank *_Atomic mine[ORION_GPUS];
    _Atomic uint32_t shared; /* 1: other processes write the page, too */
};

/* The ranks that are tied, in a loop: orion_ranks_next returns the one after `last` (NULL: the first), or NULL. */
struct orion_rank *orion_ranks_next(const struct orion_ranks *ranks, const struct orion_rank *last);
bool orion_ranks_tied(const struct orion_ranks *ranks); /* whether several are tied */

/* The GPU of a rank; NULL: it is a peer's. */
struct orion_gpu *orion_ranks_gpu(struct orion_process *process, const struct orion_ranks *ranks, const struct orion_rank *rank);

/* Numbers of collectives wrap around. */
static inline bool orion_ranks_is_behind(uint32_t one, uint32_t other) { return (int32_t)(one - other) < 0; }

uint32_t orion_ranks_launched(const struct orion_ranks *ranks); /* the last number that some tied rank has launched */

/* The last number that some tied rank with an hp has begun. If the ranks are out of step: the last number that all of
 * them have begun. If no rank has an hp, as where slots only take turns, all tied ranks count. */
uint32_t orion_ranks_begun(struct orion_process *process, const struct orion_ranks *ranks);

/* The number of a rank that is about to be tied: `own`, that of its own collectives, unless all others are far ahead. */
uint32_t orion_ranks_number(const struct orion_ranks *ranks, const struct orion_rank *rank, uint32_t own);

/* Where collectives of a GPU count. Chooses the job's page if there is one, unless several GPUs of this process are tied
 * in a page of its own, `own`. The caller holds a lock. NULL: the GPU is not in the page that is used. */
struct orion_rank *orion_ranks_place(struct orion_process *process, struct orion_ranks *ranks, struct orion_gpu *gpu,
                                     struct orion_job_page *own);

/* Whether orion_ranks_place would choose another place. */
bool orion_ranks_moves(const struct orion_process *process, const struct orion_ranks *ranks, const struct orion_gpu *gpu);

/* Tells the peers about this process's GPUs. `ends`: a context ends, until the process may be touched again (capture.h). */
void orion_ranks_publish(struct orion_process *process, const struct orion_ranks *ranks, bool ends);

/* What peers say about themselves. */
bool orion_ranks_peer_is_closed(struct orion_process *process, const struct orion_ranks *ranks);
bool orion_ranks_peer_is_ending(struct orion_process *process, const struct orion_ranks *ranks);

#endif
