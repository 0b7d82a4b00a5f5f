/* Virtual boards: a board for each client that is threads of this process, in pages that the process makes itself.
 *
 * Gate, window, learnt durations, busy word and linger work on boards and know nothing of agents, so a client of threads
 * is a board whose policy and grant this process writes, and whose neighbours are the other clients' busy pages, which
 * lie in a row, by client. No membership, no descriptors; an hp client's board has its thread (thread.c), which ends
 * lingers, and a be client's needs none. Made once and used again by the next scheduler: a thread that still holds a
 * board never meets an unmapped page.
 *
 * There is no valve (valve.h) on a virtual board: all clients share a context, and a stream that waits on the GPU for hp
 * would hold up every call of hp's that waits for the whole context, such as a free or the first launch of a kernel that
 * is loaded lazily: hp would wait for be, and be for hp. be launches wait on the CPU. */
#ifndef ORION_VIRTUAL_BOARD_H
#define ORION_VIRTUAL_BOARD_H

#include "agent/board.h"
#include "orion/inprocess.h"

struct orion_process;

struct orion_client_pages {
    struct orion_policy_page policy;
    struct orion_grant_page grant[ORION_CLIENTS_MOST];
    struct orion_busy_page busy[ORION_CLIENTS_MOST]; /* the neighbours of all: place == client */
    struct orion_record_page record[ORION_CLIENTS_MOST];
};

/* All of these under the scheduler's lock. */

/* Boards for clients 0..count-1, without roles. -1: no memory, or no room among the process's boards. */
int orion_virtual_boards_make(struct orion_process *process, uint32_t count);

/* Who is hp and who be, by client: into boards, counts, lists of neighbours and grants. */
void orion_virtual_boards_seat(struct orion_process *process, const uint32_t *roles, uint32_t count);

void orion_virtual_boards_set_policy(struct orion_process *process, uint32_t kind, uint32_t max_slowdown_milli);

/* Nobody is managed by them any more. Their lanes have ended. */
void orion_virtual_boards_leave(struct orion_process *process);

#endif
