/* A histogram of latencies with a fixed size, however long the program runs. Each row is 1/128 of a power of two wide,
 * so a percentile is at most 0.8 % too high. */
#ifndef WORKLOAD_LATENCIES_H
#define WORKLOAD_LATENCIES_H

#include <stddef.h>
#include <stdint.h>

#define LATENCY_STEPS 128
#define LATENCY_ROWS (58 * LATENCY_STEPS)

struct latencies {
    uint64_t rows[LATENCY_ROWS];
    uint64_t count, total_ns, most_ns;
};

void latencies_add(struct latencies *latencies, uint64_t ns);

/* Returns the latency in milliseconds that `of_hundred` percent do not exceed; 0 if there are none. */
double latencies_percentile_ms(const struct latencies *latencies, double of_hundred);

/* Writes `"count":...,"mean_ms":...,"p50_ms":...,"p99_ms":...,"max_ms":...`, truncated to `size`. */
void latencies_write(const struct latencies *latencies, char *text, size_t size);

#endif
