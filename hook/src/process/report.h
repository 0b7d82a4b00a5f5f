/* Sentences for people: each is written to stderr once a process, by whoever meets its reason first. */
#ifndef ORION_REPORT_H
#define ORION_REPORT_H

#include <stdint.h>

struct orion_process;

enum orion_sentence {
    ORION_SAY_NO_AGENT = 0, /* this process runs unmanaged */
    ORION_SAY_REFUSED,      /* the agent refused; its own words */
    ORION_SAY_GIVEN_UP,     /* an hp client is busy without completing anything */
    ORION_SAY_UNKNOWN,      /* a version of a driver function that this hook does not know */
    ORION_SAY_PAGES,        /* what the agent handed over is not a GPU's page */
    ORION_SAY_POLICY,       /* the policy is one that this library does not know */
    ORION_SENTENCES,
};

/* For a thread with a descriptor table of its own, in which 2 is not the process's standard error. */
void orion_report_from_another_table(void);

void orion_say_once(struct orion_process *process, enum orion_sentence sentence);
void orion_say_once_about(struct orion_process *process, enum orion_sentence sentence, const char *what);

#endif
