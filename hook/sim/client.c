/* Clients of the machine (see client.h).
 *
 * Each client has one thread, the keeper. The keeper holds the client's `alive` word as a robust futex, on a separate
 * robust list. So Linux marks the word however the process ends, and marks it before it frees the process's memory. The
 * keeper also does the work that must happen in this process at a certain time: host functions,
 * memory operations of streams, the trace.
 *
 * Rejected as signs of life: process ids (they are ambiguous across containers) and file locks (the kernel releases
 * them late). A record lock has one use: it shows which process a client is (file.h). */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"
#include "clock.h"
#include "effect.h"
#include "engine.h"
#include "event_slot.h"
#include "file.h"
#include "paging.h"
#include "state.h"
#include "trace.h"

#define REAP_EVERY_NS 500000u
#define CLAIM_EVERY_NS 500000000u

static _Atomic uint64_t own = SIM_NEVER;
static _Atomic uint64_t trace_begin = SIM_NEVER; /* read by the keeper, which runs before the client has joined */

uint64_t sim_own_client_number(void) { return atomic_load_explicit(&own, memory_order_acquire); }
uint64_t sim_trace_begin(void) { return atomic_load_explicit(&trace_begin, memory_order_acquire); }

struct sim_client *sim_own_client(void)
{
    uint64_t number = sim_own_client_number();
    return number == SIM_NEVER ? NULL : &sim_state()->clients[number];
}

/* The kernel reads `head` when the keeper ends. The pending entry covers the moment in which the keeper takes the
 * word. */
static struct robust_list_head head;
static struct robust_list entry;

static uint64_t take_index(void)
{
    uint32_t self = (uint32_t)syscall(SYS_gettid);
    for (uint64_t client_index = 0; client_index < SIM_CLIENTS; client_index++) {
        _Atomic uint32_t *word = &sim_machine->alive[client_index];
        uint32_t free_word = 0;
        if (atomic_load(word) || !sim_file_claim(client_index)) continue;
        head.list.next = &head.list;
        head.futex_offset = (long)((char *)word - (char *)&entry);
        head.list_op_pending = &entry;
        syscall(SYS_set_robust_list, &head, sizeof head);
        if (atomic_compare_exchange_strong(word, &free_word, self)) {
            entry.next = &head.list;
            head.list.next = &entry;
            head.list_op_pending = NULL;
            return client_index;
        }
        head.list_op_pending = NULL;
        sim_file_unclaim(client_index);
    }
    return SIM_NEVER;
}

struct handshake {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool finished;
    uint64_t client_index;
};

static void *keep(void *argument)
{
    struct handshake *handshake = argument;
    prctl(PR_SET_NAME, "sim-keeper");
    prctl(PR_SET_TIMERSLACK, 1000);
    pthread_mutex_lock(&handshake->mutex);
    uint64_t client_index = handshake->client_index = take_index();
    bool kept = client_index != SIM_NEVER;
    handshake->finished = true;
    pthread_cond_signal(&handshake->done);
    pthread_mutex_unlock(&handshake->mutex);
    for (uint64_t claim_ns = sim_monotonic_ns(); kept;) {
        sim_effects_work();
        if (sim_monotonic_ns() - claim_ns > CLAIM_EVERY_NS) {
            sim_file_claim(client_index);
            claim_ns = sim_monotonic_ns();
        }
    }
    return NULL;
}

static uint64_t start_keeper(void)
{
    struct handshake handshake = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, SIM_NEVER};
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool started = pthread_create(&thread, NULL, keep, &handshake) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) return SIM_NEVER;
    pthread_detach(thread);
    pthread_mutex_lock(&handshake.mutex);
    while (!handshake.finished) pthread_cond_wait(&handshake.done, &handshake.mutex);
    pthread_mutex_unlock(&handshake.mutex);
    return handshake.client_index;
}

bool sim_client_join(void)
{
    if (sim_own_client_number() != SIM_NEVER) return true;
    uint64_t client_index = start_keeper();
    if (client_index == SIM_NEVER) return false;
    atomic_store(&own, client_index);
    uint64_t head;
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        struct sim_client *client = &state->clients[client_index];
        SIM_PUT(client->used, 1);
        SIM_PUT(client->trace, sim_trace_wanted());
        if (state->clients_high < client_index + 1) SIM_PUT(state->clients_high, client_index + 1);
        head = state->trace_head;
    } while (!sim_leave());
    atomic_store_explicit(&trace_begin, head, memory_order_release);
    return true;
}

void sim_drop_context(uint64_t context)
{
    struct sim_state *state = sim_state();
    struct sim_context *of = &state->contexts[context];
    struct sim_gpu *gpu = &state->gpus[of->gpu];
    for (uint64_t i = 0; i < state->streams_high; i++)
        if (state->streams[i].used && state->streams[i].context == context) {
            sim_drop_stream(i);
            sim_commit();
        }
    sim_paging_forget(context);
    SIM_PUT(gpu->memory, gpu->memory - of->memory);
    SIM_PUT(of->memory, 0);
    SIM_PUT(of->away, 0);
    SIM_PUT(of->used, 0);
    if (gpu->group == context + 1) {
        SIM_PUT(gpu->group, 0);
        SIM_PUT(gpu->slice_end_ns, 0);
    }
    sim_run();
    sim_commit();
}

/* Frees what a dead client held. Frees the client's `alive` word last, and only if the word still belongs to the dead
 * client. Until the word is free, no other client can use the index. */
static void free_client(uint64_t client_index, uint32_t word)
{
    struct sim_state *state = sim_state();
    for (uint64_t i = 0; i < state->contexts_high; i++)
        if (state->contexts[i].used && state->contexts[i].client == client_index) sim_drop_context(i);
    sim_event_slots_drop(client_index);
    SIM_PUT(state->clients[client_index].used, 0);
    SIM_PUT(state->clients[client_index].number, 0);
    SIM_PUT(state->clients[client_index].away_ns, 0);
    sim_commit();
    struct sim_region *region = atomic_load(&sim_region);
    if (!atomic_load(&region->frozen)) atomic_compare_exchange_strong(&sim_machine->alive[client_index], &word, 0);
}

void sim_reap(void)
{
    static uint64_t checked_ns;
    uint64_t now = sim_monotonic_ns();
    if (now - checked_ns < REAP_EVERY_NS) return;
    checked_ns = now;
    for (uint64_t client_index = 0; client_index < SIM_CLIENTS; client_index++) {
        uint32_t word = atomic_load_explicit(&sim_machine->alive[client_index], memory_order_relaxed);
        if (word & FUTEX_OWNER_DIED) free_client(client_index, word);
    }
}
