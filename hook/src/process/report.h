/* Sentences for users. A process writes each sentence to standard error at most once. */
#ifndef ORION_REPORT_H
#define ORION_REPORT_H

#include <stdint.h>

struct orion_process;

enum orion_sentence {
    ORION_SAY_NO_AGENT = 0, /* no agent answers, so this process runs unmanaged */
    ORION_SAY_REFUSED,      /* the agent refused this process; the agent's text follows */
    ORION_SAY_GIVEN_UP,     /* an hp client is busy but completes no work */
    ORION_SAY_UNKNOWN,      /* the hook does not know this driver function, or its version */
    ORION_SAY_PAGES,        /* a descriptor that the agent passed is not a page of this GPU */
    ORION_SAY_POLICY,       /* this library does not know the policy */
    ORION_SAY_WHOLE_GRAPH,  /* a graph longer than the window cannot be launched in pieces; a kernel's name follows */
    ORION_SAY_PARKED,       /* the process has left the GPU's memory */
    ORION_SAY_LOST,         /* it could not come back */
    ORION_SAY_ORDER,        /* a launch goes without its order: be/order_wait.h */
    ORION_SAY_DESCRIPTORS,  /* the agent cannot be asked, because no file descriptor is free */
    ORION_SENTENCES,
};

/* The calling thread states that it has its own descriptor table, where descriptor 2 is not the process's standard
 * error. */
void orion_report_from_another_table(void);

void orion_say_once(struct orion_process *process, enum orion_sentence sentence);
void orion_say_once_about(struct orion_process *process, enum orion_sentence sentence, const char *what);

#endif
