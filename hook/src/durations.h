/* Learnt durations: identity -> expected nanoseconds, for all GPUs of the process together.
 *
 * A fixed open-addressed table, read without locks on every be launch and written when a sample comes in. Bounded: a
 * full neighbourhood gives up its least used entry. An identity that has no entry counts as long (it goes alone). */
#ifndef ORION_DURATIONS_H
#define ORION_DURATIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ORION_DURATIONS 8192u /* a power of two */

struct orion_duration {
    _Atomic uint64_t identity;  /* 0: free */
    _Atomic uint32_t expected_100ns;
    _Atomic uint32_t launches;  /* saturating; how often it was looked up, which decides when to sample again */
    _Atomic uint32_t samples;
};

struct orion_durations {
    _Atomic uint32_t known;
    struct orion_duration entry[ORION_DURATIONS];
};

/* The expected time, or 0 if it is unknown. *sample says whether this launch should be timed. */
uint64_t orion_duration_expect(struct orion_durations *durations, uint64_t identity, bool *sample);
void orion_duration_learn(struct orion_durations *durations, uint64_t identity, uint64_t measured_ns);
void orion_duration_forget(struct orion_durations *durations, uint64_t identity);

#endif
