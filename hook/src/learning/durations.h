/* What the hook knows of each identity, that is, of launches that are alike and so take about the same time
 * (identity.h): the expected duration, how many SMs the work fills, and its class (what limits its speed). One table
 * serves all GPUs of the process. Only a profile states the class, because finding the class needs hardware counters.
 * Rejected: timing be's kernels on a part of the SMs; that gives the class of be's kernels only, which is useful only
 * together with the class of hp's.
 *
 * The table is open-addressed and has a fixed size. Every be launch reads it without a lock; a sample, which is a timed
 * launch, writes it. An identity can be in a few entries only. If all of them are in use, a new identity replaces the
 * least recently used one. Work without an entry counts as long: it runs alone.
 *
 * An entry is either measured by this process or an estimate. An estimate is a measurement of earlier processes of the
 * slot (knowledge.h), or a row of a profile. The hook uses an estimate at once and measures the first launches; the
 * first sample replaces the estimate. The reason: an identity may be another program's kernel with the same name and
 * grid, with work of another size. */
#ifndef ORION_DURATIONS_H
#define ORION_DURATIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/pages.h"
#include "process/process.h"

#define ORION_DURATIONS 8192u /* a power of two */

/* Flags in orion_duration.facts. */
enum {
    ORION_FACTS_NOTED = 1u,           /* orion_kernel_note has run for this entry */
    ORION_FACTS_CLASS_GIVEN = 2u,     /* the class comes from a profile, and ends with the profile */
    ORION_FACTS_ESTIMATE = 4u,        /* this process has not measured the duration */
    ORION_FACTS_PROFILE = 8u,         /* a row of a profile, under its plain identity */
    ORION_FACTS_MAY_MOVE = 16u,       /* a kernel that can run on fewer SMs: its blocks cannot all run at once anyway */
    ORION_FACTS_HAS_PIECES = 32u,     /* a graph that can be launched in pieces: see be/graph_pieces.h */
    ORION_FACTS_AWAITS_PROGRAM = 64u, /* nothing completed for a second while it ran: be/in_flight.h */
    ORION_FACTS_VARIES = 128u,        /* some launches take longer than others: see orion_duration_learn_between */
};

struct orion_duration {
    _Atomic uint64_t identity; /* 0: free */
    _Atomic uint32_t expected_100ns;
    _Atomic uint32_t launches; /* number of look-ups, which decides which launches are timed */
    _Atomic uint32_t samples;
    _Atomic uint32_t used;                           /* `clock` at the last look-up */
    _Atomic uint32_t facts;                          /* SMs in the low 16 bits, class in the next 8, flags in the top 8 */
    _Atomic uint32_t surprises;                      /* samples in a row over four times the expected duration */
    _Atomic uint32_t reported_100ns, reported_facts; /* what the agent has; only the GPU's thread uses these */
    _Atomic uint64_t name;                           /* hash of a kernel's or largest kernel's name; 0: unknown */
} __attribute__((aligned(64)));

struct orion_durations {
    _Atomic uint32_t known, clock; /* number of used entries; a counter of new entries */
    _Atomic uint32_t changes;      /* grows when there is something to report to the agent */
    struct orion_duration entry[ORION_DURATIONS];
};
ORION_PART(durations)

/* The expected duration in ns; 0: unknown. *sample: whether the caller should time this launch. */
uint64_t orion_duration_expect(struct orion_durations *durations, uint64_t identity, bool *sample);

/* How a sample was taken. TIME_SLICED: contexts of other be clients may have had time slices of the GPU meanwhile. This
 * process cannot see their work. For long kernels this is common. CLEAN: the hook knows of no other work that
 * lengthened the sample. */
enum orion_sample { ORION_SAMPLE_CLEAN, ORION_SAMPLE_TIME_SLICED };

/* Enters a measured duration into the table. */
void orion_duration_learn(struct orion_durations *durations, uint64_t identity, uint64_t measured_ns, enum orion_sample sample);

/* Enters an estimate, unless the table has a measured duration or an estimate. */
void orion_duration_estimate(struct orion_durations *durations, uint64_t identity, uint64_t estimated_ns);

/* Enters that the work takes no longer than that, as measurements of its parts have shown. An unknown duration becomes this
 * estimate. */
void orion_duration_bound(struct orion_durations *durations, uint64_t identity, uint64_t most_ns);

/* Enters what a sample says that contains time of hp: the work took from least_ns (0: unknown) to most_ns. Where every sample contains such
 * time, the least of most_ns is the estimate. Two launches that are sure to take longer than that show that the work varies. The
 * expected duration then rises at once to what is sure, and falls slowly. Else be would have far more in flight than the
 * window, because the short launches are those that most often find hp idle. */
void orion_duration_learn_between(struct orion_durations *durations, uint64_t identity, uint64_t least_ns, uint64_t most_ns);

/* Clears the duration and facts of an identity that now stands for other work. */
void orion_duration_forget(struct orion_durations *durations, uint64_t identity);

struct orion_kernel_facts {
    uint64_t expected_ns; /* 0: unknown */
    uint32_t sms;         /* 0: unknown; for a graph: the mean over its kernels */
    enum orion_kernel_class kernel_class;
    uint32_t samples;
    bool may_move;       /* to fewer SMs */
    bool has_pieces;     /* a graph that can be launched in pieces */
    bool awaits_program; /* it may wait for what the program does next: ORION_FACTS_AWAITS_PROGRAM */
};

/* Fills *facts with what the table knows; unknown facts become 0. False: orion_kernel_note has not run for this
 * identity, and can find out more. */
bool orion_kernel_facts(struct orion_durations *durations, uint64_t identity, struct orion_kernel_facts *facts);

/* For facts.c and knowledge.c, which fill the table. `find` returns NULL if there is no entry. `claim` replaces an
 * entry if necessary. `claim_for_estimate` does not replace measured entries, and returns NULL if all entries are
 * measured. */
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
