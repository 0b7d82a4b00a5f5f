#include "be/graph_lengths.h"

#include "be/graph_order.h"
#include "learning/durations.h"
#include "learning/graphs.h"

/* A duration stays unknown if hp was busy during each launch that was timed. After UNKNOWN_MOST launches the hook cuts
 * without knowing, as if the work took UNKNOWN_WINDOWS windows. */
#define UNKNOWN_MOST 4u
#define UNKNOWN_WINDOWS 8u

uint64_t orion_length_of(struct orion_process *process, CUgraphExec exec)
{
    struct orion_kernel_facts facts;
    orion_kernel_facts(orion_durations(process), orion_graph_identity(orion_graphs(process), exec), &facts);
    return facts.expected_ns;
}

/* The same for the program's executable, with a guess. */
static uint64_t whole_of(struct orion_process *process, struct orion_graph_copy *copy, uint64_t limit)
{
    uint64_t expected = orion_length_of(process, copy->exec);
    return expected != 0 || ++copy->unknown <= UNKNOWN_MOST ? expected : UNKNOWN_WINDOWS * limit;
}

void orion_lengths_estimate(struct orion_process *process, const struct orion_piece *part, uint32_t parts, uint64_t expected)
{
    uint64_t nodes = 0;
    for (uint32_t i = 0; i < parts; i++) nodes += part[i].count;
    for (uint32_t i = 0; i < parts; i++)
        orion_duration_estimate(orion_durations(process), orion_graph_identity(orion_graphs(process), part[i].exec),
                                expected * part[i].count / nodes);
}

/* How long the pieces take together, by this process's measurements; 0: it has not measured them all. Past the limit, the
 * sum may be incomplete. */
static uint64_t measured_of(struct orion_process *process, const struct orion_graph_copy *copy, uint64_t limit)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < copy->pieces && sum <= limit; i++) {
        const struct orion_piece *piece = &copy->piece[i];
        struct orion_kernel_facts facts = {0};
        if (piece->inner != NULL) {
            facts.expected_ns = measured_of(process, piece->inner, limit);
        } else if (piece->exec != NULL && !piece->reshaped) {
            orion_kernel_facts(orion_durations(process), orion_graph_identity(orion_graphs(process), piece->exec), &facts);
            if (facts.samples == 0) facts.expected_ns = 0;
        }
        if (facts.expected_ns == 0) return 0;
        sum += facts.expected_ns;
    }
    return sum;
}

/* What was measured of the pieces is old, and the graph takes longer now. */
static void estimate_again(struct orion_process *process, const struct orion_graph_copy *copy, uint64_t expected)
{
    for (uint32_t i = 0; i < copy->pieces; i++) {
        const struct orion_piece *piece = &copy->piece[i];
        uint64_t part = expected * piece->count / copy->nodes;
        if (piece->inner != NULL) estimate_again(process, piece->inner, part);
        if (piece->exec == NULL) continue;
        uint64_t identity = orion_graph_identity(orion_graphs(process), piece->exec);
        orion_duration_forget(orion_durations(process), identity);
        orion_duration_estimate(orion_durations(process), identity, part);
    }
}

/* Pieces that are alike in the table need not take equally long, so their sum can be too low. Each time that the executable
 * has then proved long, the sum must be lower by half. */
static uint64_t short_ns(const struct orion_graph_copy *copy, uint64_t limit)
{
    return copy->relapses < 64 ? limit >> copy->relapses : 0;
}

/* Then the table knows the graph as short, too. */
static bool pieces_prove_short(struct orion_process *process, const struct orion_graph_copy *copy, uint64_t limit)
{
    uint64_t measured = measured_of(process, copy, limit);
    if (measured == 0 || measured > short_ns(copy, limit)) return false;
    orion_duration_bound(orion_durations(process), orion_graph_identity(orion_graphs(process), copy->exec), measured);
    return true;
}

bool orion_lengths_need_pieces(struct orion_process *process, struct orion_graph_copy *copy, uint64_t *whole_ns, uint64_t limit)
{
    bool has_pieces = copy->pieces > 1 || copy->piece[0].inner != NULL;
    if (has_pieces && !copy->whole_again) {
        copy->whole_again = pieces_prove_short(process, copy, limit);
        return !copy->whole_again;
    }
    uint64_t expected = whole_of(process, copy, limit);
    bool is_long = orion_graph_is_long(expected, limit);
    if (!has_pieces) {
        *whole_ns = expected;
    } else if (is_long) {
        estimate_again(process, copy, expected);
        copy->relapses++;
        copy->whole_again = false;
    }
    return is_long;
}
