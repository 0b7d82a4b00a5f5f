/* Checkpoint and restore of this process (checkpoint.c), as the rest of the driver sees it. */
#ifndef ORION_SIM_CHECKPOINT_H
#define ORION_SIM_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* This process has taken memory of another one: a checkpoint of it cannot be restored any more, even if the process has
 * released that memory since. */
void sim_checkpoint_imported(void);

/* What a call does first that driver 580 does not stop: it reads memory that a process which is away does not have, and ends it. */
void sim_checkpoint_read(void);

bool sim_checkpoint_is_away(void);

/* The books of this process's contexts (checkpoint_books.c). */
uint64_t sim_books_bytes(void); /* device memory of all contexts, on their GPUs or away */
bool sim_books_any_mig(void);   /* is a context on a GPU with MIG? */
bool sim_books_any_lost(void);  /* is a context on a lost GPU? */
void sim_books_drain(void);     /* wait until all work in all streams is complete */
void sim_books_leave(void);     /* take all memory off the GPUs */
bool sim_books_return(void);    /* take it back; false: some GPU has too little room, and nothing has changed */

#endif
