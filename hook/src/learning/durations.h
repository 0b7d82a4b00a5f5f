/* What is known of identities: how long work of one takes, how many SMs it fills, what it is short of. For all GPUs of
 * the process together. What it is short of is a profile's word alone: no launch says it without hardware counters (refused:
 * to time be's kernels on a part of the SMs, which tells it of be, where it counts only beside what is known of hp).
 *
 * A fixed open-addressed table, read without locks on every be launch and written when a sample comes in. Bounded: a full
 * neighbourhood gives up its least recently used entry. An identity that has no entry counts as long (it goes alone).
 *
 * What an entry says may be measured here, or an estimate: what earlier processes of the slot measured (knowledge.h), or a
 * profile's row. Hearsay is used at once and measured at the first launches; the first sample takes its place: an identity
 * may be another program's kernel by the same name and grid, for work of another size. */
#ifndef ORION_DURATIONS_H
#define ORION_DURATIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/pages.h"
#include "process/process.h"

#define ORION_DURATIONS 8192u /* a power of two */

enum {                               /* flags in orion_duration.facts */
       ORION_FACTS_NOTED = 1u,       /* orion_kernel_note has been here */
       ORION_FACTS_CLASS_GIVEN = 2u, /* the class is a profile's, and goes with it */
       ORION_FACTS_ESTIMATE = 4u,    /* the duration was not measured by this process */
       ORION_FACTS_PROFILE = 8u,     /* a profile's row, under its plain identity */
};

struct orion_duration {
    _Atomic uint64_t identity; /* 0: free */
    _Atomic uint32_t expected_100ns;
    _Atomic uint32_t launches; /* saturating; how often it was looked up, which decides when to sample again */
    _Atomic uint32_t samples;
    _Atomic uint32_t used;                           /* the clock when it was last looked up */
    _Atomic uint32_t facts;                          /* SMs in the low 16 bits, class in the next 8, flags in the top 8 */
    _Atomic uint32_t surprises;                      /* samples in a row of more than four times what was expected */
    _Atomic uint32_t reported_100ns, reported_facts; /* what the agent knows; the hook's thread's own */
    _Atomic uint64_t name;                           /* of the kernel, or of a graph's largest: see orion_kernel_text; 0: unknown */
} __attribute__((aligned(64)));

struct orion_durations {
    _Atomic uint32_t known, clock; /* entries in use; grows with every new one */
    _Atomic uint32_t changes;      /* grows when there is something to tell the agent */
    struct orion_duration entry[ORION_DURATIONS];
};
ORION_PART(durations)

/* The expected time, or 0 if it is unknown. *sample says whether this launch should be timed. */
uint64_t orion_duration_expect(struct orion_durations *durations, uint64_t identity, bool *sample);

/* What may have inflated a sample: nothing often; slices of time that other be clients' contexts had of the GPU meanwhile
 * (their work cannot be seen from here), which is common for long kernels. */
enum orion_sample { ORION_SAMPLE_CLEAN, ORION_SAMPLE_TIME_SLICED };
void orion_duration_learn(struct orion_durations *durations, uint64_t identity, uint64_t measured_ns, enum orion_sample sample);
void orion_duration_forget(struct orion_durations *durations, uint64_t identity);

struct orion_kernel_facts {
    uint64_t expected_ns; /* 0: unknown */
    uint32_t sms;         /* 0: unknown; of a graph: the mean over its kernels */
    enum orion_kernel_class kernel_class;
    uint32_t samples;
};

/* False: there is more to know; orion_kernel_note finds it out. *facts holds what is known already, zeros if nothing. */
bool orion_kernel_facts(struct orion_durations *durations, uint64_t identity, struct orion_kernel_facts *facts);

/* For those that fill the table: facts.c, knowledge.c. NULL: none is there, or none may make room. */
struct orion_duration *orion_duration_find(struct orion_durations *durations, uint64_t identity);
struct orion_duration *orion_duration_claim(struct orion_durations *durations, uint64_t identity);
struct orion_duration *orion_duration_claim_for_estimate(struct orion_durations *durations, uint64_t identity);

static inline uint32_t orion_facts_sms(uint32_t facts) { return facts & 0xffff; }
static inline uint32_t orion_facts_class(uint32_t facts) { return (facts >> 16) & 0xff; }
static inline uint32_t orion_facts_flags(uint32_t facts) { return facts >> 24; }
void orion_facts_set_sms(struct orion_duration *entry, uint32_t sms);
void orion_facts_set_class(struct orion_duration *entry, uint32_t kernel_class);
void orion_facts_set_flags(struct orion_duration *entry, uint32_t flags);
void orion_facts_clear_flags(struct orion_duration *entry, uint32_t flags);

#endif
