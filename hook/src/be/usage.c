#include "be/usage.h"

#include <stdbool.h>

static void put(struct orion_usage *usage, uint32_t at, struct orion_span span)
{
    if (usage->count == ORION_USAGE_SPANS) { /* forgets the earliest span, which may be the new one */
        struct orion_span earliest = at == 0 ? span : usage->span[0];
        usage->from_ns = earliest.end_ns;
        if (at == 0) return;
        for (uint32_t i = 1; i < at; i++) usage->span[i - 1] = usage->span[i];
        usage->span[at - 1] = span;
        return;
    }
    for (uint32_t i = usage->count++; i > at; i--) usage->span[i] = usage->span[i - 1];
    usage->span[at] = span;
}

uint64_t orion_usage_add(struct orion_usage *usage, uint64_t begin_ns, uint64_t end_ns)
{
    struct orion_span span = {begin_ns > usage->from_ns ? begin_ns : usage->from_ns, end_ns};
    uint64_t counted = 0;
    uint32_t at = 0, kept = 0;
    if (span.end_ns <= span.begin_ns) return 0;
    for (uint32_t i = 0; i < usage->count; i++) {
        struct orion_span other = usage->span[i];
        bool joins = other.end_ns + ORION_USAGE_GAP_NS > span.begin_ns && span.end_ns + ORION_USAGE_GAP_NS > other.begin_ns;
        if (!joins) {
            usage->span[kept++] = other;
            at += other.begin_ns < span.begin_ns;
            continue;
        }
        counted += other.end_ns - other.begin_ns;
        if (other.begin_ns < span.begin_ns) span.begin_ns = other.begin_ns;
        if (other.end_ns > span.end_ns) span.end_ns = other.end_ns;
    }
    usage->count = kept;
    put(usage, at, span);
    return span.end_ns - span.begin_ns - counted;
}
