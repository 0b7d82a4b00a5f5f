/* The threads of a process ask for credit one after the other, and a refusal holds for all that already waited. */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/credit_request.h"
#include "agent/memory_wish.h"
#include "fake_driver.h"
#include "system/system.h"

#define THREADS 8u
#define ROUNDS 2000u
#define TURN_LEAST_NS (400 * ORION_MILLISECOND) /* less than a thread's turn may last */

static struct orion_gpu *gpu;
static _Atomic unsigned asked;
static _Atomic uint64_t inside_since; /* 0: no thread asks */
static _Atomic bool ends_thread;
static _Atomic unsigned held_turns; /* 1: the next thread that asks keeps its turn; 2: it does; 0: it ends it */
static _Atomic enum orion_credit_answer answers;

/* In place of the agent. */
enum orion_credit_answer orion_memory_ask(const struct orion_gpu *of, enum orion_message_type type, uint64_t bytes)
{
    CHECK(of == gpu && type == ORION_MEMORY && bytes != 0);
    unsigned number = atomic_fetch_add(&asked, 1);
    if (atomic_load(&ends_thread)) pthread_exit(NULL);
    unsigned one = 1;
    if (atomic_compare_exchange_strong(&held_turns, &one, 2)) {
        while (atomic_load(&held_turns) != 0) orion_sleep_precisely(ORION_MILLISECOND);
        return atomic_load(&answers);
    }
    uint64_t before = atomic_exchange(&inside_since, orion_now());
    CHECK(before == 0 || orion_now() - before > TURN_LEAST_NS); /* on a machine that let the other thread wait so long */
    if (number % 64 == 0) orion_sleep_precisely(ORION_MILLISECOND);
    atomic_store(&inside_since, 0);
    return atomic_load(&answers);
}

static enum orion_credit_answer request(uint64_t bytes, struct orion_credit_wait *wait)
{
    return orion_credit_request(gpu, bytes, wait);
}

static unsigned requests_of(uint64_t bytes, struct orion_credit_wait *wait, enum orion_credit_answer expected)
{
    unsigned before = atomic_load(&asked);
    CHECK(request(bytes, wait) == expected);
    return atomic_load(&asked) - before;
}

static void a_refusal_holds_for_those_that_waited(void)
{
    struct orion_credit_wait first = {0}, earlier, later = {0};
    atomic_store(&answers, ORION_CREDIT_YES);
    CHECK(requests_of(100, &first, ORION_CREDIT_YES) == 1);
    CHECK(first.until != 0);
    earlier = first;
    atomic_store(&answers, ORION_CREDIT_NO);
    CHECK(requests_of(100, &first, ORION_CREDIT_NO) == 1);
    CHECK(requests_of(100, &earlier, ORION_CREDIT_NO) == 0);
    CHECK(requests_of(101, &earlier, ORION_CREDIT_NO) == 0);
    CHECK(requests_of(99, &earlier, ORION_CREDIT_NO) == 1);
    /* Meanwhile another process may have freed memory. */
    CHECK(requests_of(101, &later, ORION_CREDIT_NO) == 1);
}

static void an_allocation_waits_for_a_bounded_time(void)
{
    struct orion_credit_wait wait = {0};
    atomic_store(&answers, ORION_NO_ANSWER);
    CHECK(requests_of(1, &wait, ORION_NO_ANSWER) == 1);
    atomic_store(&answers, ORION_CREDIT_LATER);
    CHECK(requests_of(1, &wait, ORION_CREDIT_LATER) == 1);
    wait.until = orion_now();
    CHECK(requests_of(1, &wait, ORION_CREDIT_NO) == 0);
}

static void *ask_once(void *unused)
{
    struct orion_credit_wait wait = {0};
    request(1, &wait);
    return unused;
}

static void a_thread_that_ends_while_it_asks_delays_the_others_only(void)
{
    pthread_t thread;
    struct orion_credit_wait wait = {0};
    atomic_store(&answers, ORION_CREDIT_YES);
    atomic_store(&ends_thread, true);
    CHECK(pthread_create(&thread, NULL, ask_once, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    atomic_store(&ends_thread, false);
    enum orion_credit_answer answer;
    while ((answer = request(1, &wait)) == ORION_CREDIT_LATER) continue;
    CHECK(answer == ORION_CREDIT_YES);
}

static void a_thread_that_never_had_its_turn_asks_once(void)
{
    pthread_t thread;
    struct orion_credit_wait wait = {0};
    atomic_store(&answers, ORION_CREDIT_YES);
    CHECK(requests_of(1, &wait, ORION_CREDIT_YES) == 1);
    atomic_store(&held_turns, 1);
    CHECK(pthread_create(&thread, NULL, ask_once, NULL) == 0);
    while (atomic_load(&held_turns) != 2) orion_sleep_precisely(ORION_MILLISECOND);
    wait = (struct orion_credit_wait){orion_now(), wait.begun, false};
    CHECK(requests_of(1, &wait, ORION_CREDIT_YES) == 1);
    CHECK(requests_of(1, &wait, ORION_CREDIT_NO) == 0);
    atomic_store(&held_turns, 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *ask_often(void *unused)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct orion_credit_wait wait = {0};
        while (request(1 + i % 7, &wait) == ORION_CREDIT_LATER) continue;
    }
    return unused;
}

static void only_one_thread_asks_at_a_time(void)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, ask_often, NULL) == 0);
    for (unsigned i = 0; i < 100; i++) {
        atomic_store(&answers, i % 2 ? ORION_CREDIT_YES : ORION_CREDIT_NO);
        orion_sleep_precisely(ORION_MILLISECOND);
    }
    for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    a_refusal_holds_for_those_that_waited();
    an_allocation_waits_for_a_bounded_time();
    a_thread_that_ends_while_it_asks_delays_the_others_only();
    a_thread_that_never_had_its_turn_asks_once();
    only_one_thread_asks_at_a_time();
    puts("credit requests: ok");
    return 0;
}
