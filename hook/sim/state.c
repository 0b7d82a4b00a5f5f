/* The shared state: lock, log, commit, and the move to a new region when a lock's owner does not continue (see
 * shared.h). */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "clock.h"
#include "engine.h"
#include "file.h"
#include "state.h"

#define STUCK_NS 1000000u /* if a lock's owner keeps the lock for this long, others abandon its region */

struct sim_header *sim_machine;
struct sim_region *_Atomic sim_region;

static pthread_mutex_t one_thread = PTHREAD_MUTEX_INITIALIZER; /* held by the one thread of this process that is in the state */
static _Atomic uint64_t region_number = UINT64_MAX;            /* number of sim_region; changed under one_thread */

static long count_from(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

void sim_crash_point(void)
{
    static long kill_at = -1, stop_at;
    if (kill_at == -1) {
        stop_at = count_from("ORION_SIM_STOP_AT");
        kill_at = count_from("ORION_SIM_CRASH_AT");
    }
    if (kill_at > 0 && --kill_at == 0) kill(getpid(), SIGKILL);
    if (stop_at > 0 && --stop_at == 0) raise(SIGSTOP);
}

/* The log entry is complete before `logged` counts it, and counted before the store. So a reader that sees the store
 * can undo it. A killed process leaves a prefix of its stores, because x86 and the release stores keep their order. */
void sim_put(volatile uint64_t *word, uint64_t value)
{
    struct sim_region *region = atomic_load_explicit(&sim_region, memory_order_relaxed);
    if (*word == value) return;
    uint64_t at = atomic_load_explicit(&region->logged, memory_order_relaxed);
    struct sim_store *store = &region->journal[at % SIM_JOURNAL];
    store->offset = (uint64_t)((volatile char *)word - (volatile char *)&region->state);
    store->old = *word;
    sim_crash_point();
    atomic_store_explicit(&region->logged, at + 1, memory_order_release);
    sim_crash_point();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void sim_commit(void)
{
    struct sim_region *region = atomic_load_explicit(&sim_region, memory_order_relaxed);
    sim_crash_point();
    atomic_store(&region->committed, atomic_load_explicit(&region->logged, memory_order_relaxed));
    sim_crash_point();
}

void sim_commit_if_full(void)
{
    struct sim_region *region = atomic_load_explicit(&sim_region, memory_order_relaxed);
    if (atomic_load_explicit(&region->logged, memory_order_relaxed) -
            atomic_load_explicit(&region->committed, memory_order_relaxed) >
        SIM_JOURNAL / 2)
        sim_commit();
}

/* Undo unfinished stores, latest first. Undoing twice has the same result as once. */
static void undo_unfinished(struct sim_region *region)
{
    uint64_t committed = atomic_load(&region->committed);
    for (uint64_t at = atomic_load(&region->logged); at > committed && at - committed <= SIM_JOURNAL; at--) {
        struct sim_store *store = &region->journal[(at - 1) % SIM_JOURNAL];
        if (store->offset <= sizeof region->state - sizeof(uint64_t))
            memcpy((char *)&region->state + store->offset, &store->old, sizeof store->old);
    }
}

static void copy_queues(struct sim_state *to, const struct sim_state *from)
{
    for (uint64_t i = 0; i < to->streams_high && i < SIM_STREAMS; i++) {
        uint64_t tail = to->streams[i].tail;
        for (uint64_t at = to->streams[i].done; at < tail; at++) to->queue[i][at % SIM_QUEUE] = from->queue[i][at % SIM_QUEUE];
    }
}

static uint64_t at_most(uint64_t count, uint64_t most) { return count < most ? count : most; }

/* Copies the part of the state that is in use. Above a high-water mark both regions are zero. Which entries of a queue
 * are valid depends on its stream as it was before the unfinished stores. So this function undoes the stores in the
 * copy before it copies the queues, and once more afterwards. */
static void copy_state(struct sim_region *to, const struct sim_region *from)
{
    const struct sim_state *source = &from->state;
    struct sim_state *target = &to->state;
    uint64_t logged = atomic_load(&from->logged), committed = atomic_load(&from->committed);
    for (uint64_t at = committed; at < logged && at - committed <= SIM_JOURNAL; at++)
        to->journal[at % SIM_JOURNAL] = from->journal[at % SIM_JOURNAL];
    atomic_store(&to->logged, logged);
    atomic_store(&to->committed, committed);
    memcpy(target, source, offsetof(struct sim_state, clients));
    memcpy(target->clients, source->clients, sizeof target->clients);
    uint64_t contexts = at_most(source->contexts_high, SIM_CONTEXTS);
    uint64_t streams = at_most(source->streams_high, SIM_STREAMS);
    memcpy(target->contexts, source->contexts, contexts * sizeof target->contexts[0]);
    memcpy(target->ranges, source->ranges, at_most(source->ranges_high, SIM_RANGES) * sizeof target->ranges[0]);
    memcpy(target->streams, source->streams, streams * sizeof target->streams[0]);
    memcpy(target->busy, source->busy, streams * sizeof target->busy[0]);
    memcpy(target->events, source->events, at_most(source->events_high, SIM_EVENTS) * sizeof target->events[0]);
    memcpy(target->trace, source->trace, at_most(source->trace_head, SIM_TRACE) * sizeof target->trace[0]);
    undo_unfinished(to);
    copy_queues(target, source);
    undo_unfinished(to);
}

static void wake(_Atomic uint32_t *word, int count) { syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0); }

/* Abandon region `number`. The freeze comes before the copy, and an owner commits before it checks for a freeze. So the
 * copy contains every commit that its owner considers valid. */
static void abandon(struct sim_region *old, uint64_t number)
{
    atomic_store(&old->frozen, 1);
    sim_crash_point();
    uint64_t fresh_number = atomic_fetch_add(&sim_machine->next_region, 1);
    struct sim_region *fresh = sim_file_region(fresh_number);
    if (!fresh) return;
    uint64_t before;
    do {
        before = atomic_load(&old->logged);
        copy_state(fresh, old);
    } while (before !=
                 atomic_fetch_add(&old->logged, 0) && /* an atomic write that changes nothing, ordered after all the reads above */
             atomic_load(&sim_machine->current) == number);
    atomic_store(&fresh->committed, atomic_load(&fresh->logged));
    sim_crash_point();
    if (atomic_compare_exchange_strong(&sim_machine->current, &number, fresh_number)) {
        sim_crash_point();
        wake(&old->lock, INT_MAX);
        if (fresh_number > 16) sim_file_forget(fresh_number - 16);
    } else {
        sim_file_forget(fresh_number);
    }
    sim_file_unmap(fresh);
}

static struct sim_region *attach(void)
{
    uint64_t current = atomic_load(&sim_machine->current);
    if (current != region_number) {
        struct sim_region *region = sim_file_region(current);
        if (!region) abort(); /* another process truncated the file: nothing of the machine is left */
        sim_file_retire(atomic_exchange(&sim_region, region));
        region_number = current;
    }
    return atomic_load(&sim_region);
}

/* Tries once to take the lock of `region`. Waits at most until the lock looks stuck. */
static bool try_lock(struct sim_region *region)
{
    for (int spin = 0; spin < 100; spin++) {
        uint32_t free_word = 0;
        if (atomic_load_explicit(&region->lock, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&region->lock, &free_word, 1))
            return true;
        sim_pause();
    }
    uint64_t turns = atomic_load(&region->turns), since = sim_monotonic_ns();
    while (!atomic_load(&region->frozen)) {
        if (atomic_exchange(&region->lock, 2) == 0) return true;
        struct timespec patience = {0, STUCK_NS};
        syscall(SYS_futex, &region->lock, FUTEX_WAIT, 2, &patience, NULL, 0);
        uint64_t now = sim_monotonic_ns(), turns_now = atomic_load(&region->turns);
        if (turns_now != turns) {
            turns = turns_now;
            since = now;
        } else if (now - since >= STUCK_NS) {
            return false;
        }
    }
    return false;
}

static void unlock(struct sim_region *region)
{
    if (atomic_exchange(&region->lock, 0) == 2) wake(&region->lock, 1);
}

static void lock_current(void)
{
    for (;;) {
        struct sim_region *region = attach();
        uint64_t number = region_number;
        if (!atomic_load(&region->frozen) && try_lock(region)) {
            atomic_fetch_add(&region->turns, 1);
            if (!atomic_load(&region->frozen) && atomic_load(&sim_machine->current) == number) {
                sim_crash_point();
                return;
            }
            unlock(region);
        }
        if (atomic_load(&sim_machine->current) == number) abandon(region, number);
    }
}

void sim_enter(void)
{
    pthread_mutex_lock(&one_thread);
    lock_current();
    sim_reap();
    sim_advance(sim_now_ns());
}

void sim_refresh(void)
{
    if (atomic_load_explicit(&sim_machine->current, memory_order_acquire) !=
        atomic_load_explicit(&region_number, memory_order_relaxed)) {
        sim_enter();
        sim_leave();
    }
}

bool sim_leave(void)
{
    struct sim_region *region = atomic_load(&sim_region);
    uint64_t number = region_number, mine = 0;
    struct sim_client *client = sim_own_client();
    if (client) {
        mine = client->number + 1;
        SIM_PUT(client->number, mine);
    }
    sim_commit();
    bool kept = !atomic_load(&region->frozen) && atomic_load(&sim_machine->current) == number;
    unlock(region);
    if (!kept) { /* check whether the valid state contains our stores */
        lock_current();
        client = sim_own_client();
        kept = client && client->number >= mine;
        unlock(atomic_load(&sim_region));
    }
    pthread_mutex_unlock(&one_thread);
    return kept;
}

bool sim_open(void)
{
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&opening);
    if (!sim_machine) {
        struct sim_header *header = sim_file_open();
        struct sim_region *first = header ? sim_file_region(atomic_load(&header->current)) : NULL;
        if (first) {
            sim_file_unmap(first); /* this mapping was only a test; attach maps the current region */
            sim_machine = header;
            pthread_mutex_lock(&one_thread);
            attach();
            pthread_mutex_unlock(&one_thread);
        }
    }
    pthread_mutex_unlock(&opening);
    return sim_machine != NULL;
}
