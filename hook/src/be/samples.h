/* What a timed launch, a sample, teaches about the duration of its identity (learning/durations.h). */
#ifndef ORION_SAMPLES_H
#define ORION_SAMPLES_H

struct orion_chunk;
struct orion_process;
struct orion_stream_record;

/* Learns from a completed chunk; one without a sample teaches nothing. The caller holds the ledger and is in relaxed capture mode. */
void orion_sample_learn(struct orion_process *process, const struct orion_stream_record *stream_record,
                        const struct orion_chunk *chunk);

#endif
