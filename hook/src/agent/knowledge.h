/* Exchanges knowledge (orion/knowledge.h) with the agent. The hook's thread does this with the table of durations, off
 * the launch path. A received duration is an estimate until this process measures it. A received duration never
 * replaces a measured duration. */
#ifndef ORION_KNOWLEDGE_EXCHANGE_H
#define ORION_KNOWLEDGE_EXCHANGE_H

#include <stdint.h>

#include "learning/durations.h"
#include "orion/join.h"

/* Reads a table into `durations`. Returns how many entries were used, or 0 if `table` is not a valid table. The caller
 * still owns the descriptor `table`. */
uint32_t orion_knowledge_receive(struct orion_durations *durations, int table);

/* Collects entries that the agent does not know yet: fills `entries`, and sets `indexes` to the index of each in
 * `durations`. Continues the search at *cursor, which wraps. Returns the number of entries. If it is less than
 * ORION_LEARNT_ENTRIES, the whole table was searched. */
struct orion_knowledge_batch {
    struct orion_knowledge_entry entries[ORION_LEARNT_ENTRIES];
    uint16_t indexes[ORION_LEARNT_ENTRIES];
};
uint32_t orion_knowledge_collect(struct orion_durations *durations, uint32_t *cursor, struct orion_knowledge_batch *batch);
void orion_knowledge_reported(struct orion_durations *durations, const struct orion_knowledge_batch *batch, uint32_t count);

/* The schedule of reports: frequent at first, so that a short-lived process reports something, then less frequent. */
struct orion_knowledge_reports {
    /* at_ns: time of the next report; UINT64_MAX: this agent takes no reports. pause_ns: time to the report after
     * it. */
    uint64_t at_ns, pause_ns;
    uint32_t changes, cursor; /* `durations->changes` at the last complete report; where the next search starts */
};
void orion_knowledge_reports_begin(struct orion_knowledge_reports *reports, struct orion_durations *durations,
                                   const struct orion_welcome *welcome, uint64_t now);
void orion_knowledge_reports_poll(struct orion_knowledge_reports *reports, struct orion_durations *durations, int socket,
                                  uint64_t now);

#endif
