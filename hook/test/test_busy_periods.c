/* hp writes each closed busy period into its record page, and a reader that looks at the same time finds the last ones
 * whole. The test also runs under the thread sanitizer. */
#include "check.h"
#include "fake_driver.h"

#include <pthread.h>

#include "core/core.h"
#include "system/system.h"

#define PERIODS (3 * ORION_BUSY_PERIODS + 5)
#define READ_PERIODS 200000

struct span { uint64_t begin, end; };

static struct orion_gpu *gpu;
static _Atomic uint32_t finished;

static void be_busy_once(void)
{
    struct orion_work work = {.stream = {(CUstream)0x5000, false}, .identity = 1};
    orion_work_begin(&work);
    orion_work_end(&work, CUDA_SUCCESS);
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {(CUstream)0x5000, false}};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static struct span read_period(uint64_t number)
{
    struct orion_busy_period *found = &gpu->record->period[number % ORION_BUSY_PERIODS];
    uint64_t begin = atomic_load_explicit(&found->begin_ns, memory_order_acquire);
    return (struct span){begin, atomic_load_explicit(&found->end_ns, memory_order_acquire)};
}

static void each_period_is_at_its_number(void)
{
    struct span expected[PERIODS];
    uint64_t sum = 0;
    for (unsigned i = 0; i < PERIODS; i++) {
        expected[i].begin = orion_now();
        be_busy_once();
        expected[i].end = orion_now();
        CHECK(atomic_load(&gpu->record->busy_periods) == i + 1);
        struct span found = read_period(i);
        CHECK(expected[i].begin <= found.begin && found.begin <= found.end && found.end <= expected[i].end);
        sum += found.end - found.begin;
        CHECK(atomic_load(&gpu->record->busy_ns) == sum);
    }
    for (unsigned i = PERIODS - ORION_BUSY_PERIODS; i < PERIODS; i++)
        CHECK(expected[i].begin <= read_period(i).begin && read_period(i).end <= expected[i].end);
}

/* Reads as pages.h says. Periods that are in order and do not overlap are whole. */
static void *reader(void *argument)
{
    (void)argument;
    struct span found[ORION_BUSY_PERIODS];
    while (!atomic_load(&finished)) {
        uint64_t count = atomic_load_explicit(&gpu->record->busy_periods, memory_order_acquire);
        for (unsigned i = 0; i < ORION_BUSY_PERIODS; i++) found[i] = read_period(i);
        uint64_t later = atomic_load_explicit(&gpu->record->busy_periods, memory_order_acquire), previous_end = 0;
        for (uint64_t n = later > ORION_BUSY_PERIODS ? later - ORION_BUSY_PERIODS + 1 : 0; n < count; n++) {
            struct span *each = &found[n % ORION_BUSY_PERIODS];
            CHECK(each->begin >= previous_end && each->end >= each->begin && each->begin != 0);
            previous_end = each->end;
        }
    }
    return NULL;
}

static void a_reader_finds_whole_periods(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    for (unsigned i = 0; i < READ_PERIODS; i++) be_busy_once();
    atomic_store(&finished, 1);
    pthread_join(thread, NULL);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_HP);
    each_period_is_at_its_number();
    a_reader_finds_whole_periods();
    puts("busy periods: ok");
    return 0;
}
