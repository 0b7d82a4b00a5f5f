/* The time of an event is known to some microseconds, whatever the driver's floats, the GPU's clock and the hook's delays
 * are like. */
#include "check.h"

#include "be/gpu_clock.h"
#include "fake_driver.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define US ORION_MICROSECOND
#define MS ORION_MILLISECOND
#define OTHER_CONTEXT ((CUcontext)0x2000)
#define EVENTS 8u

static struct orion_gpu_clock gpu_clock;
static struct orion_stream_record one = {.context = FAKE_CONTEXT}, two = {.context = FAKE_CONTEXT},
                                  other = {.context = OTHER_CONTEXT};
/* When each event completed, by the GPU's clock in nanoseconds, and its context. */
static double completed[EVENTS];
static CUcontext context_of[EVENTS];
static unsigned destroyed;
static CUresult broken = CUDA_SUCCESS;

static CUevent event(uintptr_t i) { return (CUevent)(0x10 + i); }
static uintptr_t index_of(CUevent of) { return (uintptr_t)of - 0x10; }

static CUresult CUDAAPI fake_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    CHECK(context_of[index_of(start)] == context_of[index_of(end)]);
    *milliseconds = (float)((completed[index_of(end)] - completed[index_of(start)]) / 1e6);
    return broken;
}
static CUresult CUDAAPI fake_destroy(CUevent gone)
{
    CHECK(gone != NULL);
    destroyed++;
    return CUDA_SUCCESS;
}

static uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

/* A stream ends a chunk each millisecond for a minute. The GPU's clock is 1 part in 10,000 faster. The hook finds one end of
 * ten at once, and the others late. */
static void follows_a_clock_that_drifts(void)
{
    uint64_t begin = 5000 * ORION_SECOND;
    CUevent next = event(1);
    for (unsigned i = 0; i < 60000; i++) {
        uint64_t true_end = begin + i * MS, late = i % 10 == 0 ? 2 * US : (i * 7919) % 900 * US;
        completed[index_of(next)] = (double)(i * MS) * 1.0001 + 1e9;
        context_of[index_of(next)] = FAKE_CONTEXT;
        uint64_t at = orion_gpu_clock_end(&gpu_clock, &one, &next, true_end - MS, true_end + late);
        if (next == NULL) next = event(2);
        CHECK(distance(at, true_end) < (i < 10 ? 900 * US : 12 * US));
    }
    CHECK(gpu_clock.context == FAKE_CONTEXT);
}

static void another_event_is_known_beside_it(void)
{
    uint64_t at, end = 6000 * ORION_SECOND;
    CUevent last = event(3);
    completed[3] = 9e9, context_of[3] = FAKE_CONTEXT;
    completed[4] = 9e9 - 3e6, context_of[4] = FAKE_CONTEXT;
    gpu_clock.base = NULL;
    CHECK(orion_gpu_clock_end(&gpu_clock, &two, &last, end - MS, end) == end && last == NULL);
    CHECK(orion_gpu_clock_read(&gpu_clock, &two, event(4), &at) && distance(at, end - 3 * MS) < US);
    CHECK(!orion_gpu_clock_read(&gpu_clock, &two, NULL, &at));
    CHECK(!orion_gpu_clock_read(&gpu_clock, &other, event(4), &at));
    broken = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(!orion_gpu_clock_read(&gpu_clock, &two, event(4), &at));
    broken = CUDA_SUCCESS;
}

static void events_end_with_their_context(void)
{
    CHECK(gpu_clock.context == FAKE_CONTEXT && destroyed == 0);
    orion_gpu_clock_forget(&gpu_clock, OTHER_CONTEXT, true);
    CHECK(destroyed == 0 && gpu_clock.base != NULL);
    orion_gpu_clock_forget(&gpu_clock, FAKE_CONTEXT, false);
    CHECK(destroyed == 0 && gpu_clock.base == NULL); /* its context has destroyed it */
    orion_gpu_clock_forget(&gpu_clock, FAKE_CONTEXT, true);
    CHECK(destroyed == 0);
}

/* No event of another context comes back for reuse. */
static void contexts_take_over(void)
{
    uint64_t end = 7000 * ORION_SECOND;
    CUevent first = event(5), second = event(6);
    context_of[5] = FAKE_CONTEXT, context_of[6] = OTHER_CONTEXT;
    CHECK(orion_gpu_clock_end(&gpu_clock, &one, &first, end - MS, end) == end && first == NULL);
    CHECK(orion_gpu_clock_end(&gpu_clock, &other, &second, end, end + MS) == end + MS && second == NULL && destroyed == 1);
    orion_gpu_clock_forget(&gpu_clock, NULL, true);
    CHECK(destroyed == 2);
}

int main(void)
{
    orion_driver.cuEventElapsedTime_v2 = fake_elapsed;
    orion_driver.cuEventDestroy_v2 = fake_destroy;
    follows_a_clock_that_drifts();
    another_event_is_known_beside_it();
    events_end_with_their_context();
    contexts_take_over();
    puts("gpu_clock: ok");
    return 0;
}
