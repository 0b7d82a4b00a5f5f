/* Giving and taking knowledge (orion/knowledge.h): what the hook's thread does with the table of durations, off the launch
 * path. What was taken is an estimate until it is measured, and never drives out what was. */
#ifndef ORION_KNOWLEDGE_EXCHANGE_H
#define ORION_KNOWLEDGE_EXCHANGE_H

#include <stdint.h>

#include "learning/durations.h"
#include "orion/join.h"

/* Takes a table. Returns how many entries were used; 0 also for what is no such table. `table` stays the caller's. */
uint32_t orion_knowledge_take(struct orion_durations *durations, int table);

/* What the agent has not been told: fills `entries` and says in `of` where each is from. Looks on from *cursor, which
 * wraps; returns how many, fewer than ORION_LEARNT_ENTRIES when the whole table was looked through. */
struct orion_knowledge_news {
    struct orion_knowledge_entry entries[ORION_LEARNT_ENTRIES];
    uint16_t of[ORION_LEARNT_ENTRIES];
};
uint32_t orion_knowledge_news(struct orion_durations *durations, uint32_t *cursor, struct orion_knowledge_news *news);
void orion_knowledge_reported(struct orion_durations *durations, const struct orion_knowledge_news *news, uint32_t count);

/* Telling it: soon at first, since a short-lived process should leave something, then less often. */
struct orion_telling {
    uint64_t at_ns, pause_ns; /* when to look for news, UINT64_MAX: this agent does not listen; and how long until again */
    uint32_t changes, cursor; /* how much of what has changed was told */
};
void orion_telling_begin(struct orion_telling *telling, struct orion_durations *durations, const struct orion_welcome *welcome,
                         uint64_t now);
void orion_telling_attend(struct orion_telling *telling, struct orion_durations *durations, int socket, uint64_t now);

#endif
