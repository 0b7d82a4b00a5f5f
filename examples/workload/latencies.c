/* Implements latencies.h. */
#include "latencies.h"

#include <stdio.h>

/* Below 128 ns each value has its own row; above, the 7 bits after the highest bit select a row of the power of two. */
static unsigned row_of(uint64_t ns)
{
    unsigned shift = 0;
    while (ns >> shift >= 2 * LATENCY_STEPS) shift++;
    return shift * LATENCY_STEPS + (unsigned)(ns >> shift);
}

static uint64_t end_of(unsigned row)
{
    unsigned shift = row < 2 * LATENCY_STEPS ? 0 : row / LATENCY_STEPS - 1;
    return ((uint64_t)(row - shift * LATENCY_STEPS) + 1) << shift;
}

void latencies_add(struct latencies *latencies, uint64_t ns)
{
    latencies->rows[row_of(ns)]++;
    latencies->count++;
    latencies->total_ns += ns;
    if (ns > latencies->most_ns) latencies->most_ns = ns;
}

double latencies_percentile_ms(const struct latencies *latencies, double of_hundred)
{
    double wanted = (double)latencies->count * of_hundred / 100;
    uint64_t passed = 0;
    for (unsigned row = 0; row < LATENCY_ROWS && latencies->count; row++) {
        passed += latencies->rows[row];
        if (passed && (double)passed >= wanted) {
            uint64_t end = end_of(row);
            return (double)(end < latencies->most_ns ? end : latencies->most_ns) / 1e6;
        }
    }
    return 0;
}

void latencies_write(const struct latencies *latencies, char *text, size_t size)
{
    double mean = latencies->count ? (double)latencies->total_ns / (double)latencies->count / 1e6 : 0;
    snprintf(text, size, "\"count\":%llu,\"mean_ms\":%.3f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f",
             (unsigned long long)latencies->count, mean, latencies_percentile_ms(latencies, 50),
             latencies_percentile_ms(latencies, 99), (double)latencies->most_ns / 1e6);
}
