/* A page that GPUs wait on, on the simulated driver: a thread without a current context can pin it, a failure that passes
 * disables it for a while, and only a driver that does not support it disables it for good. */
#include "simulated_process.h"

#include "be/event_words.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/work.h"
#include "streams/stream_records.h"
#include "until.h"

#define EXPECTED_NS (100 * ORION_MICROSECOND)
#define SHARE_NS (400 * ORION_MICROSECOND)

static CUcontext context;
static struct orion_stream_record *record;
static struct orion_valve *valve;

static orion_word_call *real_wait;
static __typeof__(orion_driver.cuMemHostRegister_v2) real_register;
static CUresult answer; /* of the calls that the test replaces */
static unsigned calls;

static CUresult CUDAAPI register_or_fail(void *memory, size_t bytes, unsigned flags)
{
    calls++;
    return answer != CUDA_SUCCESS ? answer : real_register(memory, bytes, flags);
}

static CUresult CUDAAPI wait_or_fail(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags)
{
    CUcontext current;
    calls++;
    MUST(cuCtxGetCurrent(&current));
    if (answer == CUDA_ERROR_INVALID_CONTEXT && current != NULL) return real_wait(stream, word, value, flags);
    return answer != CUDA_SUCCESS ? answer : real_wait(stream, word, value, flags);
}

static void unpin(void) { atomic_fetch_add(&process->context_epoch, 1); } /* as when a context ends */

static bool is_ready(void) { return orion_valve_ready(process, record); }

static void await_ready(void)
{
    for (uint64_t began = orion_now(); !is_ready(); orion_sleep_precisely(ORION_MILLISECOND)) {
        CHECK(orion_now() < began + DEADLINE_NS);
        CHECK(!atomic_load(&valve->refused));
    }
}

/* A watcher that was late keeps the valve from use for a second, without a call of the driver. */
static void await_failure(void)
{
    calls = 0;
    for (uint64_t began = orion_now(); calls == 0; orion_sleep_precisely(ORION_MILLISECOND))
        CHECK(!is_ready() && orion_now() < began + DEADLINE_NS);
}

static bool pass(void)
{
    const struct orion_work work = {0};
    orion_be_stream_record(record)->waited_epoch = 0; /* a wait is due */
    return orion_valve_pass(process, record, &work, &orion_valve_stop, EXPECTED_NS, SHARE_NS);
}

static void a_thread_without_a_context_pins_it(void)
{
    CUcontext now;
    MUST(cuCtxSetCurrent(NULL));
    await_ready();
    CHECK(pass());
    MUST(cuCtxGetCurrent(&now));
    CHECK(now == NULL);
    MUST(cuCtxSetCurrent(context));
}

static void a_wait_may_need_the_streams_context(void)
{
    MUST(cuCtxSetCurrent(NULL));
    answer = CUDA_ERROR_INVALID_CONTEXT;
    CHECK(pass() && orion_pinned_page_is_pinned(process, &valve->page));
    answer = CUDA_SUCCESS;
    MUST(cuCtxSetCurrent(context));
}

/* The launches meanwhile are gated on the CPU, and do not call the driver each time. */
static void a_failure_that_passes_disables_it_for_a_while(CUresult failure)
{
    unpin();
    answer = failure;
    await_failure();
    uint64_t began = orion_now();
    for (unsigned i = 0; i < 1000; i++) CHECK(!is_ready());
    CHECK(calls <= 2 + (orion_now() - began) / ORION_MILLISECOND);
    answer = CUDA_SUCCESS;
    await_ready();
    CHECK(pass());
}

static void a_wait_that_fails_disables_it_for_a_while(void)
{
    uint32_t before = orion_be_stream_record(record)->waited_epoch;
    CHECK(before != 0);
    answer = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK(!pass() && orion_be_stream_record(record)->waited_epoch == 0); /* the next launch puts the wait */
    answer = CUDA_SUCCESS;
    await_ready();
    CHECK(pass() && orion_be_stream_record(record)->waited_epoch == before);
}

static bool words_are_ready(void)
{
    struct orion_event_words *all = orion_event_words(process);
    return orion_pinned_page_ready(process, record, &all->page, &all->lock, &all->refused);
}

static void other_pages_recover_too(void)
{
    answer = CUDA_ERROR_OUT_OF_MEMORY;
    MUST(cuCtxSetCurrent(NULL));
    CHECK(!words_are_ready() && !words_are_ready());
    answer = CUDA_SUCCESS;
    UNTIL(words_are_ready());
    MUST(cuCtxSetCurrent(context));
}

/* Numbers wrap: for half of all numbers a comparison says that an old one is still to come. */
static void only_numbers_to_come_are_waited_for(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const struct orion_stream_record *source = orion_stream_record_of(process, (struct orion_stream_name){stream, false});
    CHECK(source != NULL && words_are_ready());
    _Atomic uint32_t *word = &orion_event_words(process)->page.words[orion_stream_record_index(process, source)];
    atomic_store(word, 5);
    calls = 0;
    const uint32_t past[] = {5, 4, 1, 5u - (1u << 30), 5u - (1u << 31), 5u - (1u << 31) - 1, 5u + (1u << 30) + 1};
    for (unsigned i = 0; i < sizeof past / sizeof *past; i++) orion_event_word_wait(process, record, source, past[i]);
    CHECK(calls == 0);
    orion_event_word_wait(process, record, source, 6);
    CHECK(calls == 1);
    atomic_store(word, 6);
}

static void without_support_it_is_disabled_for_good(void)
{
    unpin();
    answer = CUDA_ERROR_NOT_SUPPORTED;
    await_failure();
    CHECK(atomic_load(&valve->refused));
    CHECK(!words_are_ready() && atomic_load(&orion_event_words(process)->refused));
    answer = CUDA_SUCCESS;
    CHECK(!is_ready() && !words_are_ready());
}

static void set_up(void)
{
    CUstream stream;
    begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuCtxGetCurrent(&context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->hp_clients, 1);
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    learn_nothing();
    record = orion_stream_record_of(process, (struct orion_stream_name){stream, false});
    CHECK(record != NULL);
    valve = &orion_be(gpu)->valve;
    real_register = orion_driver.cuMemHostRegister_v2;
    real_wait = orion_driver.cuStreamWaitValue32_v2;
    orion_driver.cuMemHostRegister_v2 = register_or_fail;
    orion_driver.cuStreamWaitValue32_v2 = wait_or_fail;
}

int main(void)
{
    set_up();
    a_thread_without_a_context_pins_it();
    a_wait_may_need_the_streams_context();
    a_failure_that_passes_disables_it_for_a_while(CUDA_ERROR_OUT_OF_MEMORY);
    a_failure_that_passes_disables_it_for_a_while(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    a_wait_that_fails_disables_it_for_a_while();
    other_pages_recover_too();
    only_numbers_to_come_are_waited_for();
    without_support_it_is_disabled_for_good();
    return 0;
}
