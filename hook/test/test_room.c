/* The threads of a process that wait for room ask one after the other, and an agent that has died delays hp once. What may be
 * taken at any moment, the page does not say to be taken. */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/memory_wish.h"
#include "fake_driver.h"
#include "memory/memory.h"
#include "parking/room.h"
#include "system/system.h"

#define THREADS 8u
#define ROUNDS 200u
#define TURN_LEAST_NS (400 * ORION_MILLISECOND) /* less than a thread's turn may last */

#define ASKED_AGAIN_NS (1100 * ORION_MILLISECOND)

static struct orion_gpu *gpu;
static struct orion_grant_page *grant;
static _Atomic unsigned asked;
static _Atomic uint64_t inside_since; /* 0: no thread asks */
static _Atomic enum orion_credit_answer answers;
static _Atomic uint64_t taken_when_asked;

/* What the process says to have taken. */
static uint64_t taken(void)
{
    uint64_t word = atomic_load(&gpu->record->memory_taken);
    CHECK(word & ORION_MEMORY_TAKEN);
    return word & ~ORION_MEMORY_TAKEN;
}

/* In place of the agent. */
enum orion_credit_answer orion_memory_ask(const struct orion_gpu *of, enum orion_message_type type, uint64_t bytes)
{
    CHECK(of == gpu && type == ORION_ROOM && bytes != 0);
    unsigned number = atomic_fetch_add(&asked, 1);
    atomic_store(&taken_when_asked, atomic_load(&gpu->record->memory_taken) & ~ORION_MEMORY_TAKEN);
    uint64_t before = atomic_exchange(&inside_since, orion_now());
    CHECK(before == 0 || orion_now() - before > TURN_LEAST_NS); /* on a machine that let the other thread wait so long */
    if (number % 64 == 0) orion_sleep_precisely(ORION_MILLISECOND);
    atomic_store(&inside_since, 0);
    return atomic_load(&answers);
}

static void *wait_often(void *unused)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t until = 0;
        CHECK(orion_room_may_come(0, 1 + i, &until));
    }
    return unused;
}

static void only_one_thread_asks_at_a_time(void)
{
    pthread_t threads[THREADS];
    atomic_store(&answers, ORION_CREDIT_LATER);
    for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, wait_often, NULL) == 0);
    for (unsigned before = atomic_load(&asked); atomic_load(&asked) < before + 2 * THREADS;)
        orion_sleep_precisely(ORION_MILLISECOND);
    atomic_store(&answers, ORION_CREDIT_YES);
    for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

#define SIZE 100u

static void reserve(void)
{
    struct orion_wish unused;
    CHECK(orion_memory_reserve(0, SIZE, ORION_MEMORY_RESIDENT, &unused) == ORION_RESERVED);
}

/* Of an allocation, so that none of its room is given away: a thread may stop between the agent's yes and the driver's call. */
static void the_driver_may_be_asked_at_any_moment_until_it_has_answered(void)
{
    uint64_t key = 0x1000;
    for (CUresult result = CUDA_SUCCESS; key < 0x3000; key += 0x1000, result = CUDA_ERROR_OUT_OF_MEMORY) {
        uint64_t until = 0, before = atomic_load(&gpu->record->memory_bytes);
        reserve();
        CHECK(taken() == before && atomic_load(&gpu->record->memory_bytes) == before + SIZE);
        atomic_store(&answers, ORION_CREDIT_YES);
        CHECK(orion_room_may_come(0, SIZE, &until) && atomic_load(&taken_when_asked) == before && taken() == before);
        orion_memory_reserved(0, SIZE, ORION_MEMORY_RESIDENT, key, result);
        CHECK(taken() == atomic_load(&gpu->record->memory_bytes));
    }
}

static void *says_yes_to_one_that_waits(void *unused)
{
    atomic_store(&answers, ORION_CREDIT_LATER);
    while (taken() != 2 * SIZE) orion_sleep_precisely(ORION_MILLISECOND / 10); /* it holds 100, and waits for as much */
    atomic_store(&answers, ORION_CREDIT_YES);
    return unused;
}

/* The agent counts by itself what it has not given yet. */
static void nothing_is_taken_by_one_that_waits_for_the_agent(void)
{
    uint64_t until = 0;
    pthread_t thread;
    reserve();
    atomic_store(&answers, ORION_CREDIT_LATER);
    CHECK(pthread_create(&thread, NULL, says_yes_to_one_that_waits, NULL) == 0);
    CHECK(orion_room_may_come(0, SIZE, &until) && atomic_load(&taken_when_asked) == SIZE && taken() == SIZE);
    CHECK(pthread_join(thread, NULL) == 0);
    atomic_store(&answers, ORION_CREDIT_NO);
    CHECK(!orion_room_may_come(0, SIZE, &until));
    orion_memory_reserved(0, SIZE, ORION_MEMORY_RESIDENT, 0, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(taken() == SIZE);
}

static bool may_ask_the_driver(void)
{
    uint64_t until = 0;
    return orion_room_ask_first(0, 100, &until);
}

static unsigned asks_first(void)
{
    unsigned before = atomic_load(&asked);
    CHECK(may_ask_the_driver());
    return atomic_load(&asked) - before;
}

static void the_room_of_those_who_come_back_is_not_taken(uint32_t epoch)
{
    atomic_store(&grant->credit_epoch, epoch);
    grant->copy[0].memory_wait_ns = 100 * ORION_MILLISECOND;
    atomic_store(&grant->returning_mib, 7);
    atomic_store(&answers, ORION_CREDIT_LATER);
    CHECK(!may_ask_the_driver()); /* the wait has ended before the return */
    atomic_store(&answers, ORION_CREDIT_NO);
    CHECK(!may_ask_the_driver());
    atomic_store(&answers, ORION_CREDIT_YES);
    CHECK(may_ask_the_driver());
    atomic_store(&answers, ORION_NO_ANSWER);
    CHECK(may_ask_the_driver()); /* nobody knows whether they still come back */
    atomic_store(&grant->returning_mib, 0);
    CHECK(may_ask_the_driver());
}

static void every_be_asks_and_hp_that_waits(uint32_t epoch)
{
    static const struct {
        enum orion_role role;
        uint32_t parks;
        bool asks;
    } cases[] = {{ORION_ROLE_BE, 0, true}, {ORION_ROLE_BE, 1, true}, {ORION_ROLE_HP, 0, false}};
    atomic_store(&grant->credit_epoch, epoch);
    grant->copy[0].memory_wait_ns = 0;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        atomic_store(&gpu->role, cases[i].role);
        grant->copy[0].parks = cases[i].parks;
        atomic_store(&grant->returning_mib, 7);
        atomic_store(&answers, ORION_CREDIT_YES);
        CHECK(asks_first() == cases[i].asks);
        atomic_store(&answers, ORION_CREDIT_NO);
        CHECK(may_ask_the_driver() == !cases[i].asks);
        atomic_store(&grant->returning_mib, 0);
        CHECK(asks_first() == 0);
    }
}

static void *comes_back(void *unused)
{
    for (unsigned before = atomic_load(&asked); atomic_load(&asked) < before + 3;) orion_sleep_precisely(ORION_MILLISECOND);
    atomic_store(&grant->returning_mib, 0);
    return unused;
}

static void an_allocation_waits_until_they_are_back(uint32_t epoch)
{
    pthread_t thread;
    atomic_store(&grant->credit_epoch, epoch);
    grant->copy[0].memory_wait_ns = 60 * ORION_SECOND;
    atomic_store(&grant->returning_mib, 7);
    atomic_store(&answers, ORION_CREDIT_LATER);
    CHECK(pthread_create(&thread, NULL, comes_back, NULL) == 0);
    uint64_t began = orion_now();
    CHECK(may_ask_the_driver());
    CHECK(orion_now() - began < 30 * ORION_SECOND);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void an_agent_that_has_died_delays_one_allocation(uint64_t wait_ns, uint32_t epoch)
{
    grant->copy[0].memory_wait_ns = wait_ns;
    atomic_store(&grant->returning_mib, 0);
    atomic_store(&answers, ORION_CREDIT_YES);
    CHECK(asks_first() == 0); /* nobody comes back */
    atomic_store(&grant->returning_mib, 7);
    CHECK(asks_first() == 1);
    atomic_store(&answers, ORION_NO_ANSWER);
    CHECK(asks_first() > 1);
    CHECK(asks_first() == 0);
    atomic_store(&answers, ORION_CREDIT_YES);
    atomic_store(&grant->credit_epoch, epoch); /* another agent */
    CHECK(asks_first() == 1);
}

static void an_agent_that_was_stopped_is_asked_again_for_the_same_words(void)
{
    grant->copy[0].memory_wait_ns = 60 * ORION_SECOND;
    atomic_store(&grant->returning_mib, 7);
    atomic_store(&answers, ORION_NO_ANSWER);
    CHECK(asks_first() > 1);
    CHECK(asks_first() == 0);
    orion_sleep_precisely(ASKED_AGAIN_NS);
    CHECK(asks_first() == 1); /* nobody waits for it */
    CHECK(asks_first() == 0);
    orion_sleep_precisely(ASKED_AGAIN_NS);
    atomic_store(&answers, ORION_CREDIT_YES);
    for (unsigned i = 0; i < 3; i++) CHECK(asks_first() == 1);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    grant = (struct orion_grant_page *)(uintptr_t)gpu->grant;
    grant->copy[0].parks = 1;
    the_driver_may_be_asked_at_any_moment_until_it_has_answered();
    nothing_is_taken_by_one_that_waits_for_the_agent();
    only_one_thread_asks_at_a_time();
    atomic_store(&gpu->role, ORION_ROLE_HP);
    an_agent_that_has_died_delays_one_allocation(60 * ORION_SECOND, 2);
    an_agent_that_has_died_delays_one_allocation(100 * ORION_MILLISECOND, 3);
    an_agent_that_was_stopped_is_asked_again_for_the_same_words();
    the_room_of_those_who_come_back_is_not_taken(4);
    an_allocation_waits_until_they_are_back(5);
    every_be_asks_and_hp_that_waits(6);
    puts("room: ok");
    return 0;
}
