/* Effects (see effect.h): a list in the order of announcement. The driver's keeper thread processes the list. */
#include <pthread.h>
#include <stdlib.h>

#include "clock.h"
#include "effect.h"
#include "engine.h"
#include "state.h"
#include "trace.h"

#define TRACE_EVERY_NS 20000000u
/* A wait that is not over is asked again after ASK_AGAIN_NS. One that has waited for long is asked again after a part of
 * that time, ASK_SELDOM_NS at most: else many programs that wait would take the CPU from those that work. */
#define ASK_AGAIN_NS 50000u
#define ASK_SELDOM_NS 400000u
#define ASK_PART 16u

struct effect {
    struct effect *next;
    struct sim_position position;
    sim_effect_run run;
    void *data;
    uint64_t early_ns;
    uint64_t asked_ns; /* when it was first not done; 0: not yet */
};

_Atomic uint32_t sim_effects_done;
static _Atomic uint32_t announcements; /* grows with every announcement; the keeper sleeps on this word */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct effect *first, **last = &first;
static __thread bool running;

bool sim_in_host_function(void) { return running; }

void sim_effect_add(const struct sim_position *position, sim_effect_run run, void *data, uint64_t early_ns)
{
    struct effect *effect = malloc(sizeof *effect);
    if (!effect) abort(); /* its operation is already queued and would block the stream for ever */
    *effect = (struct effect){NULL, *position, run, data, early_ns, 0};
    pthread_mutex_lock(&mutex);
    *last = effect;
    last = &effect->next;
    pthread_mutex_unlock(&mutex);
    atomic_fetch_add(&announcements, 1);
    sim_wake(&announcements);
}

/* Is the effect's operation at the head of its stream? NOT_YET: no; `*when` is the earliest time at which the operation
 * may get there. GONE: the operation is no longer in the stream. */
enum turn { NOT_YET, NOW, GONE };

static enum turn turn_of(const struct effect *effect, uint64_t *when)
{
    struct sim_position before = effect->position;
    enum turn turn = NOT_YET;
    before.number--;
    sim_enter();
    const struct sim_stream *of = &sim_state()->streams[effect->position.stream];
    if (of->generation != effect->position.generation || of->done >= effect->position.number) turn = GONE;
    else if (of->done == before.number) turn = NOW;
    else *when = sim_earliest(&before);
    sim_leave();
    return turn;
}

void sim_effects_wake(void)
{
    atomic_fetch_add(&sim_effects_done, 1);
    sim_wake(&sim_effects_done);
}

/* Mark the operation done. If it is not at the head yet, it completes as soon as it gets there. */
static void mark_done(const struct effect *effect)
{
    const struct sim_position *at = &effect->position;
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        if (state->streams[at->stream].generation == at->generation && state->streams[at->stream].done < at->number) {
            SIM_PUT(sim_op_at(state, at->stream, at->number - 1)->end_ns, 1);
            sim_run();
        }
    } while (!sim_leave());
    sim_effects_wake();
}

static void unlink_effect(struct effect *effect)
{
    pthread_mutex_lock(&mutex);
    struct effect **link = &first;
    while (*link != effect) link = &(*link)->next;
    *link = effect->next;
    if (last == &effect->next) last = link;
    pthread_mutex_unlock(&mutex);
    free(effect->data);
    free(effect);
}

static uint64_t ask_again(struct effect *effect)
{
    uint64_t now = sim_monotonic_ns();
    if (!effect->asked_ns) effect->asked_ns = now;
    uint64_t pause = (now - effect->asked_ns) / ASK_PART;
    return now + (pause < ASK_AGAIN_NS ? ASK_AGAIN_NS : pause > ASK_SELDOM_NS ? ASK_SELDOM_NS : pause);
}

/* Runs one effect if it is due. Returns the time of the next attempt; 0: the effect has left the list. */
static uint64_t attempt(struct effect *effect)
{
    uint64_t when = 0;
    enum turn turn = turn_of(effect, &when);
    /* The time is a lower bound: an effect that may not run early has to wait for its turn. */
    if (turn == NOT_YET && (!effect->early_ns || when > sim_monotonic_ns() + effect->early_ns)) return when - effect->early_ns;
    if (turn != GONE) {
        running = true;
        bool done = effect->run(effect->data);
        running = false;
        if (!done) return ask_again(effect);
        mark_done(effect);
    }
    unlink_effect(effect);
    return 0;
}

/* One round: an effect behind another one of its stream is not due before that one is done. Without this rule, a graph
 * that waits and has many waits behind it would keep the keeper, and so the lock of the state, busy. Threads that submit
 * into one stream may announce its effects in another order than that of the stream, so the list may have the later one first. */
void sim_effects_work(void)
{
    /* By stream: the last round in which an effect of it was not due, and the number of the earliest such effect. */
    static struct { uint64_t round, number; } stays[SIM_STREAMS];
    static uint64_t round;
    round++;
    uint32_t seen = atomic_load(&announcements);
    uint64_t until = SIM_NEVER;
    pthread_mutex_lock(&mutex);
    struct effect *effect = first;
    pthread_mutex_unlock(&mutex);
    while (effect) { /* only this thread unlinks entries, so `next` stays valid */
        pthread_mutex_lock(&mutex);
        struct effect *next = effect->next;
        pthread_mutex_unlock(&mutex);
        uint64_t stream = effect->position.stream, number = effect->position.number;
        if (stays[stream].round != round || number < stays[stream].number) {
            uint64_t when = attempt(effect);
            if (when == 0) until = 0;
            else if (when < until) until = when;
            if (when) stays[stream].round = round, stays[stream].number = number;
        }
        effect = next;
    }
    if (until == 0) return;
    if (sim_trace_wanted()) {
        uint64_t drain = sim_monotonic_ns() + TRACE_EVERY_NS;
        sim_trace_drain();
        until = until < drain ? until : drain;
    }
    sim_sleep_until(until, &announcements, seen);
}
