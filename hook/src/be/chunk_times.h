/* For how long a chunk had the GPU: see chunks.h. The caller holds the ledger and is in relaxed capture mode. */
#ifndef ORION_CHUNK_TIMES_H
#define ORION_CHUNK_TIMES_H

#include <stdbool.h>
#include <stdint.h>

struct orion_chunk;
struct orion_process;
struct orion_stream_record;

/* Adds a completed chunk to the client's GPU time, after its sample has been learnt. `lost`: its context has ended, so its
 * events say nothing. */
void orion_chunk_account(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_chunk *chunk,
                         bool lost, uint64_t now_ns);

/* Adds the expected time of all chunks that are not complete, and of the open chunk. Called where no event will measure
 * them. */
void orion_chunks_expect(struct orion_stream_record *stream_record, uint64_t now_ns);

#endif
