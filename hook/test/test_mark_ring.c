/* The ring of marks against a simple model: random queues on random streams, completed at random. */
#include "check.h"

#include <string.h>

#include "hp/mark_ring.h"

#define STALL UINT64_C(1000000000)
#define STREAMS 80u

static uint64_t seed = 5;
static uint32_t below(uint32_t bound)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % bound;
}

static struct orion_stream_record records[STREAMS];
static struct orion_mark_ring ring;

/* The model: the pending marks that nothing has proved, of each stream from the oldest to the newest. */
static struct {
    uint64_t returned[ORION_MARKS], recorded_ns[ORION_MARKS];
    uint32_t count;
} model[STREAMS];

static void start(void)
{
    memset(&ring, 0, sizeof ring);
    memset(records, 0, sizeof records);
    memset(model, 0, sizeof model);
}

static uint32_t modelled(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < STREAMS; i++) count += model[i].count;
    return count;
}

static void model_keep(uint32_t stream, uint32_t *kept, uint32_t j)
{
    model[stream].returned[*kept] = model[stream].returned[j];
    model[stream].recorded_ns[(*kept)++] = model[stream].recorded_ns[j];
}

static uint32_t newer_of_all_streams(uint64_t recorded_ns)
{
    uint32_t newer = 0;
    for (uint32_t i = 0; i < STREAMS; i++)
        for (uint32_t j = 0; j < model[i].count; j++) newer += model[i].recorded_ns[j] > recorded_ns;
    return newer;
}

static void model_thin(void)
{
    uint32_t of_streams = 0, newer[STREAMS][ORION_MARKS];
    for (uint32_t i = 0; i < STREAMS; i++) of_streams += model[i].count / 2;
    for (uint32_t i = 0; i < STREAMS; i++)
        for (uint32_t j = 0; j < model[i].count; j++)
            newer[i][j] = of_streams >= ORION_MARKS / 3 ? model[i].count - 1 - j : newer_of_all_streams(model[i].recorded_ns[j]);
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint32_t kept = 0;
        for (uint32_t j = 0; j < model[i].count; j++)
            if (newer[i][j] % 2 == 0) model_keep(i, &kept, j);
        model[i].count = kept;
    }
}

static bool is_modelled(const struct orion_mark *mark)
{
    uint32_t stream = (uint32_t)(mark->stream_record - records);
    for (uint32_t j = 0; j < model[stream].count; j++)
        if (model[stream].returned[j] == mark->returned) return true;
    return false;
}

static void compare(void)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < ORION_MARKS; i++) {
        const struct orion_mark *mark = &ring.mark[i];
        uint32_t state = atomic_load(&mark->state);
        CHECK(state != ORION_MARK_OWNED);
        if (state != ORION_MARK_PENDING || orion_mark_is_proven(mark)) continue;
        CHECK(is_modelled(mark));
        for (uint32_t j = 0; j < i; j++)
            CHECK(atomic_load(&ring.mark[j].state) != ORION_MARK_PENDING || ring.mark[j].stream_record != mark->stream_record ||
                  ring.mark[j].returned != mark->returned);
        found++;
    }
    CHECK(found == modelled());
}

static void make_mark(uint32_t stream, uint64_t now)
{
    uint64_t returned = atomic_load(&records[stream].returned) + 1 + below(40);
    atomic_store(&records[stream].returned, returned);
    uint32_t before = orion_mark_ring_stride(&ring);
    bool full = modelled() == ORION_MARKS;
    if (full) model_thin();
    struct orion_mark *mark = orion_mark_ring_take(&ring, now, STALL);
    CHECK((mark == NULL) == (modelled() == ORION_MARKS));
    CHECK(!full || orion_mark_ring_stride(&ring) == before * 2 || before == 1u << 20);
    if (mark == NULL) return;
    mark->stream_record = &records[stream];
    mark->returned = returned;
    mark->recorded_ns = now;
    orion_mark_give(mark, ORION_MARK_PENDING);
    model[stream].recorded_ns[model[stream].count] = now;
    model[stream].returned[model[stream].count++] = returned;
}

/* As a synchronisation of the stream, or the drain thread, proves work. */
static void complete(uint32_t stream)
{
    uint64_t drained = atomic_load(&records[stream].drained), returned = atomic_load(&records[stream].returned);
    drained += below((uint32_t)(returned - drained) + 1);
    atomic_store(&records[stream].drained, drained);
    uint32_t kept = 0;
    for (uint32_t j = 0; j < model[stream].count; j++)
        if (model[stream].returned[j] > drained) model_keep(stream, &kept, j);
    model[stream].count = kept;
}

static void the_ring_does_as_the_model(uint32_t streams, uint32_t completions)
{
    start();
    for (uint64_t now = 1; now < 3000; now++) {
        uint32_t stream = below(streams);
        if (below(100) < completions) complete(stream);
        else make_mark(stream, now * 1000);
        compare();
    }
}

/* However long the queue is: marks lie less than two strides apart, and there are never fewer than half of the ring. */
static void marks_are_spread_evenly_over_one_queue(void)
{
    start();
    uint64_t marked = 0;
    for (uint64_t launch = 1; launch <= 20000; launch++) {
        if (launch < marked + orion_mark_ring_stride(&ring)) continue;
        struct orion_mark *mark = orion_mark_ring_take(&ring, launch * STALL, STALL);
        CHECK(mark != NULL);
        mark->stream_record = records;
        mark->returned = marked = launch;
        orion_mark_give(mark, ORION_MARK_PENDING);
        uint64_t at = 0, most = 0;
        uint32_t pending = 0;
        while (at < launch) { /* from each mark to the next one */
            uint64_t next = UINT64_MAX;
            for (uint32_t i = 0; i < ORION_MARKS; i++)
                if (atomic_load(&ring.mark[i].state) == ORION_MARK_PENDING && ring.mark[i].returned > at &&
                    ring.mark[i].returned < next)
                    next = ring.mark[i].returned;
            CHECK(next <= launch);
            if (next - at > most) most = next - at;
            at = next;
            pending++;
        }
        CHECK(most <= 2 * orion_mark_ring_stride(&ring));
        CHECK(launch < ORION_MARKS || pending >= ORION_MARKS / 2);
    }
}

/* With more streams than marks, the marks that stay are not all at one end of the queue. */
static void many_streams_show_their_progress(void)
{
    start();
    const uint64_t launches = 1000;
    uint64_t marked[STREAMS] = {0}, early = 0, late = 0;
    for (uint64_t launch = 1; launch <= launches; launch++)
        for (uint32_t i = 0; i < STREAMS; i++) {
            if (launch < marked[i] + orion_mark_ring_stride(&ring)) continue;
            struct orion_mark *mark = orion_mark_ring_take(&ring, STALL, STALL);
            CHECK(mark != NULL);
            mark->stream_record = &records[i];
            mark->returned = marked[i] = launch;
            mark->recorded_ns = launch * STREAMS + i;
            orion_mark_give(mark, ORION_MARK_PENDING);
        }
    for (uint32_t i = 0; i < ORION_MARKS; i++) {
        if (atomic_load(&ring.mark[i].state) != ORION_MARK_PENDING) continue;
        if (ring.mark[i].returned > launches / 2) late++;
        else if (ring.mark[i].returned > launches / 8) early++;
    }
    CHECK(early > 0 && late > 0);
}

/* Marks every `step` ns; each is complete before the next. */
static uint32_t stride_after(uint32_t marks, uint64_t step, uint64_t now)
{
    for (uint32_t i = 0; i < marks; i++, now += step) {
        struct orion_mark *mark = orion_mark_ring_take(&ring, now, STALL);
        mark->stream_record = records;
        mark->returned = 0;
        mark->recorded_ns = now;
        orion_mark_give(mark, ORION_MARK_PENDING);
    }
    return orion_mark_ring_stride(&ring);
}

static void the_distance_follows_the_durations(void)
{
    start();
    CHECK(orion_mark_ring_stride(&ring) == 1);
    CHECK(stride_after(10 * ORION_MARKS, STALL / 60, 1) == 1);
    CHECK(stride_after(10 * ORION_MARKS, STALL / 1000, 100 * STALL) == ORION_MARK_STRIDE);
    uint64_t now = 200 * STALL;
    orion_mark_ring_completed(&ring, now - STALL / 5, now, STALL);
    CHECK(orion_mark_ring_stride(&ring) == ORION_MARK_STRIDE);
    for (uint32_t stride = ORION_MARK_STRIDE / 2; stride >= 1; stride /= 2) {
        now += STALL / 2;
        orion_mark_ring_completed(&ring, 1, now, STALL);
        CHECK(orion_mark_ring_stride(&ring) == stride);
    }
    orion_mark_ring_completed(&ring, 1, now + STALL, STALL);
    CHECK(orion_mark_ring_stride(&ring) == 1);
    /* The GPU was idle before the mark was recorded. */
    atomic_store(&ring.stride, 8);
    orion_mark_ring_completed(&ring, now + 9 * STALL, now + 9 * STALL + 1000, STALL);
    CHECK(orion_mark_ring_stride(&ring) == 8);
}

static void what_one_queue_needed_ends_with_it(void)
{
    start();
    atomic_store(&ring.stride, 1024);
    orion_mark_ring_relax(&ring);
    CHECK(orion_mark_ring_stride(&ring) == ORION_MARK_STRIDE);
    atomic_store(&ring.stride, 2);
    orion_mark_ring_relax(&ring);
    CHECK(orion_mark_ring_stride(&ring) == 2);
}

int main(void)
{
    for (uint32_t completions = 0; completions < 80; completions += 20) {
        the_ring_does_as_the_model(1, completions);
        the_ring_does_as_the_model(7, completions);
        the_ring_does_as_the_model(STREAMS, completions);
    }
    marks_are_spread_evenly_over_one_queue();
    many_streams_show_their_progress();
    the_distance_follows_the_durations();
    what_one_queue_needed_ends_with_it();
    return 0;
}
