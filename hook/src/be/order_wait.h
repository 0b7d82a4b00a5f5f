/* A thread waits for earlier work that its launch must follow, where nothing in a stream can wait for that work: graphs of other threads
 * in pieces (between_pieces.h), the last launch of a graph in pieces (graph_follow.h), a moved kernel (partition.h).
 *
 * That work may depend on what the thread does next, so each wait ends, and the launch then goes without its order. Two bounds hold. The
 * first counts only time in which the work could go on: no hp and no other slot's turn held it, on any GPU of the process or of its job.
 * The second also counts time around short pauses of hp. While hp is busy without a pause neither counts, since the launch itself would
 * wait as long. While the process is away (parking/) neither counts. */
#ifndef ORION_ORDER_WAIT_H
#define ORION_ORDER_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "system/system.h"

struct orion_gpu;
struct orion_process;

#define ORION_ORDER_FREE_NS (2 * ORION_SECOND)  /* longer than the window takes to forget work that does not end (window.c) */
#define ORION_ORDER_ALL_NS (600 * ORION_SECOND) /* so late that hp has left be next to nothing */

struct orion_order_wait {     /* begins as {0} */
    uint64_t free_ns, all_ns; /* what counts for each bound so far */
    uint64_t looked_ns;       /* at the last step; 0: there was none */
    bool held;                /* at the last step */
};

/* One step of the wait for work that is, or will be, on the GPU. The time since the last step counts, so the caller may look for completed
 * work between two steps. False: the wait was long enough. Then the process has said so. */
bool orion_order_waits(struct orion_process *process, struct orion_gpu *gpu, struct orion_order_wait *wait);

/* The same with another first bound, where the driver promises no order: the process says nothing. */
bool orion_order_waits_briefly(struct orion_process *process, struct orion_gpu *gpu, struct orion_order_wait *wait,
                               uint64_t free_ns);

#endif
