/* Membership: how a GPU's thread joins its slot and stays connected to it. orion/join.h defines the messages. */
#ifndef ORION_MEMBERSHIP_H
#define ORION_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/knowledge.h"
#include "process/gpu.h"

struct orion_process;

struct orion_membership { /* used only by the GPU's thread; the descriptors are in that thread's table */
    struct orion_process *process;
    struct orion_gpu *gpu;
    int socket;       /* -1: not connected */
    int busy, record; /* -1: never joined */
    int job;          /* the page of the client's job; -1: none */
    uint32_t client_index, generation;
    uint64_t try_again_ns;                  /* time of the next attempt to connect */
    bool welcome;                           /* the agent has answered since the last connect */
    bool is_new;                            /* it has given new pages, and not yet said who is hp */
    uint64_t answer_by_ns;                  /* the hook disconnects if the agent has not answered by this time */
    uint32_t unknown_reported;              /* number of unknown functions (unknown.h) that this agent knows */
    struct orion_knowledge_reports reports; /* reports of learnt durations to the agent */
};

void orion_membership_begin(struct orion_membership *membership, struct orion_process *process, struct orion_gpu *gpu);

/* Connects if an attempt is due, and handles the messages that have arrived. Never blocks. */
void orion_membership_poll(struct orion_membership *membership, uint64_t now);

/* The time until the next attempt, report or timeout, in nanoseconds. */
uint64_t orion_membership_due(const struct orion_membership *membership, uint64_t now);

#endif
