/* Membership: how a GPU's thread joins its slot and stays in it (the messages are those of orion/join.h). */
#ifndef ORION_MEMBERSHIP_H
#define ORION_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/knowledge.h"
#include "process/gpu.h"

struct orion_process;

struct orion_membership { /* the thread's own; descriptors of its own table */
    struct orion_process *process;
    struct orion_gpu *gpu;
    int socket;       /* -1: not connected */
    int busy, record; /* -1: never joined */
    uint32_t client_index, generation;
    uint64_t try_again_ns;        /* when to connect next */
    bool welcome;                 /* answered since the last connect */
    uint64_t answer_by_ns;        /* give the connection up if there is no answer by then */
    struct orion_telling telling; /* to the agent, what was learnt */
};

void orion_membership_begin(struct orion_membership *membership, struct orion_process *process, struct orion_gpu *gpu);

/* Connects if that is due, and takes whatever the agent has sent. Never blocks. */
void orion_membership_attend(struct orion_membership *membership, uint64_t now);

/* How long until something is due without news, nanoseconds. */
uint64_t orion_membership_due(const struct orion_membership *membership, uint64_t now);

#endif
