/* Collectives pass on all tied GPUs or on none: the numbers, the word, and GPUs that run as they like. */
#include "check.h"

#include <stdlib.h>

#include "fake_driver.h"
#include "system.h"
#include "be/collective.h"
#include "streams/capture.h"
#include "streams/lanes.h"

#define GPUS 3
#define ROUNDS 20000

static struct orion_process *process;
static struct orion_board *boards[GPUS];

/* -- GPUs: each has one stream, of waits and writes ------------------------------------------------------------------- */

struct operation { bool wait; uint32_t *word, value; };
static struct { struct operation queue[64]; unsigned first, count; } gpus[GPUS];
static struct orion_lane lanes[GPUS];

static CUresult put(CUstream stream, struct operation operation)
{
    unsigned gpu = (unsigned)(uintptr_t)stream % 16;
    CHECK(gpu < GPUS && gpus[gpu].count < 64);
    gpus[gpu].queue[(gpus[gpu].first + gpus[gpu].count++) % 64] = operation;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    CHECK(flags == CU_STREAM_WAIT_VALUE_GEQ);
    return put(stream, (struct operation){true, (uint32_t *)(uintptr_t)address, value});
}
static CUresult CUDAAPI fake_write(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)flags;
    return put(stream, (struct operation){false, (uint32_t *)(uintptr_t)address, value});
}
static CUresult CUDAAPI fake_register(void *memory, size_t bytes, unsigned flags)
{
    (void)memory, (void)bytes, (void)flags;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_pointer(CUdeviceptr *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

/* One operation of a GPU's stream, if it can go on. */
static bool step(unsigned gpu)
{
    if (gpus[gpu].count == 0) return false;
    struct operation *next = &gpus[gpu].queue[gpus[gpu].first];
    uint32_t value = __atomic_load_n(next->word, __ATOMIC_SEQ_CST);
    if (next->wait && (int32_t)(value - next->value) < 0) return false;
    if (!next->wait) __atomic_store_n(next->word, next->value, __ATOMIC_SEQ_CST);
    gpus[gpu].first = (gpus[gpu].first + 1) % 64;
    gpus[gpu].count--;
    return true;
}

static void run_all(void)
{
    for (unsigned i = 0; i < GPUS; i++)
        while (step(i)) {}
}

/* -- hp --------------------------------------------------------------------------------------------------------------- */

static struct orion_policy_page *policy(unsigned gpu) { return (struct orion_policy_page *)(uintptr_t)boards[gpu]->policy; }
static void set_hp(unsigned gpu, bool busy)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)boards[gpu]->neighbours;
    atomic_store(&page->beat_ns, orion_now());
    atomic_store(&page->state, busy ? ORION_BUSY : ORION_IDLE);
}

static void begin(void)
{
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    orion_driver.cuStreamWriteValue32_v2 = fake_write;
    orion_driver.cuMemHostRegister_v2 = fake_register;
    orion_driver.cuMemHostGetDevicePointer_v2 = fake_pointer;
    boards[0] = fake_board(ORION_ROLE_BE);
    process = orion_process_started();
    for (unsigned i = 0; i < GPUS; i++) {
        boards[i] = orion_board_of((CUdevice)i);
        orion_board_await_join(boards[i]);
        atomic_store(&boards[i]->role, ORION_ROLE_BE);
        atomic_store(&boards[i]->hp_count, 1);
        policy(i)->copy[0].kind = ORION_POLICY_GATE;
        atomic_store(&policy(i)->hp_clients, 1);
        lanes[i].board = boards[i];
        lanes[i].stream.handle = (CUstream)(uintptr_t)(0x100 + i);
    }
}

static uint32_t launch(unsigned gpu)
{
    uint32_t number = orion_collective_begin(process, boards[gpu]);
    if (number == 0) return 0;
    CHECK(orion_collective_ready(process));
    CHECK(orion_collective_pass(process, &lanes[gpu], number));
    return number;
}

/* -- Tests ------------------------------------------------------------------------------------------------------------ */

static void names(void)
{
    CHECK(orion_collective_is_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
    CHECK(orion_collective_is_name("_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"));
    CHECK(orion_collective_is_name("ncclKernel_AllReduce_RING_LL_Sum_float"));
    CHECK(!orion_collective_is_name("ampere_sgemm_128x64_nn"));
    CHECK(!orion_collective_is_name("_ZN2at6native4ncclE"));
    CHECK(!orion_collective_is_name("_Z"));
    CHECK(!orion_collective_is_name(""));
}

static void one_gpu_is_not_tied(void)
{
    for (unsigned i = 0; i < 5; i++) CHECK(launch(0) == 0);
    set_hp(0, true);
    CHECK(!orion_collective_attend(process));
    CHECK(orion_collective_stands(process, boards[0]) == NULL);
    set_hp(0, false);
    for (unsigned i = 0; i < 5; i++) CHECK(launch(1) == i + 1);
    CHECK(launch(0) == 6 && launch(1) == 6);
    run_all();
    CHECK(gpus[0].count == 0 && gpus[1].count == 0);
}

static void what_has_begun_is_finished_and_nothing_else_begins(void)
{
    launch(0), launch(1), launch(0), launch(1);
    step(0), step(0);                                   /* the first one runs on GPU 0 */
    set_hp(1, true);
    CHECK(orion_collective_attend(process));
    CHECK(!orion_collective_attend(process));           /* settled */
    CHECK(orion_collective_stands(process, boards[0]) == boards[1]);
    run_all();
    CHECK(gpus[0].count == 2 && gpus[1].count == 2);    /* and finishes on GPU 1; the second on neither */
    set_hp(1, false);
    orion_collective_attend(process);
    run_all();
    CHECK(gpus[0].count == 0 && gpus[1].count == 0);
    CHECK(orion_collective_stands(process, boards[0]) == NULL);
}

/* The GPU is past the wait and has not said so yet when the word closes. */
static void what_began_while_closing_is_seen_at_the_next_look(void)
{
    launch(0), launch(1);
    step(0);
    set_hp(0, true);
    CHECK(orion_collective_attend(process));
    CHECK(!step(1));
    step(0);
    CHECK(orion_collective_attend(process));
    run_all();
    CHECK(gpus[0].count == 0 && gpus[1].count == 0);
    set_hp(0, false);
    orion_collective_attend(process);
}

static void on_the_cpu_the_same_holds(void)
{
    uint32_t first = orion_collective_begin(process, boards[0]);
    CHECK(!orion_collective_held(process, boards[0], first));
    orion_collective_go(process, boards[0], first);
    CHECK(!orion_collective_follows(process, boards[0], first));
    set_hp(1, true);
    CHECK(orion_collective_begin(process, boards[1]) == first);
    CHECK(orion_collective_follows(process, boards[1], first));
    CHECK(!orion_collective_held(process, boards[1], first)); /* though its own hp is busy */
    orion_collective_go(process, boards[1], first);
    uint32_t second = orion_collective_begin(process, boards[0]);
    CHECK(orion_collective_held(process, boards[0], second));
    set_hp(1, false);
    orion_collective_wait(process, boards[0], second);
    orion_collective_go(process, boards[0], second);
    orion_collective_go(process, boards[1], orion_collective_begin(process, boards[1]));
}

/* GPUs run as they like, one far ahead of the other; hp comes and goes. Whenever the word is closed and has been looked at
 * twice, the GPUs come to a stop at the same number. */
static void whenever_hp_comes_all_gpus_stop_at_one_number(void)
{
    unsigned seed = 5, stops = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned gpu = (unsigned)rand_r(&seed) % 2;
        if (gpus[0].count < 20 && gpus[1].count < 20) launch(0), launch(1);
        for (unsigned steps = (unsigned)rand_r(&seed) % 3; steps > 0; steps--) {
            unsigned left = gpus[gpu].count; /* a collective ends when its peers have begun: none is a whole one ahead */
            if (left + 2 <= gpus[1 - gpu].count) break;
            step(gpu);
        }
        if (rand_r(&seed) % 50 != 0) continue;
        unsigned whose = (unsigned)rand_r(&seed) % 2;
        set_hp(whose, true);
        unsigned before = gpus[0].count < gpus[1].count ? gpus[0].count : gpus[1].count;
        orion_collective_attend(process);
        for (unsigned i = 0; i < 2; i++)
            if (gpus[i].count % 2 == 1) step(i); /* what was past its wait says so */
        orion_collective_attend(process);
        run_all();
        CHECK(gpus[0].count == gpus[1].count && gpus[0].count % 2 == 0);
        CHECK(gpus[0].count + 1 >= before);      /* nothing else began */
        CHECK(!orion_collective_attend(process));
        set_hp(whose, false);
        orion_collective_attend(process);
        stops++;
    }
    run_all();
    CHECK(stops > ROUNDS / 100 && gpus[0].count == 0 && gpus[1].count == 0);
}

/* GPUs 1 and 2 have a communicator of their own, and are far ahead of GPU 0: nothing begins on any for another's sake. */
static void out_of_step_all_are_held(void)
{
    CHECK(launch(2) != 0);
    for (unsigned i = 0; i < 40; i++) launch(1), launch(2), run_all();
    launch(0), launch(1), launch(2);
    set_hp(0, true);
    orion_collective_attend(process);
    run_all();
    CHECK(gpus[0].count == 2 && gpus[1].count == 2 && gpus[2].count == 2);
    atomic_store(&policy(0)->hp_clients, 0); /* nobody to be spared there any more, and its page says idle */
    set_hp(0, false);
    orion_collective_attend(process);
    run_all();
    CHECK(gpus[0].count == 0 && gpus[1].count == 0 && gpus[2].count == 0);
    atomic_store(&policy(0)->hp_clients, 1);
}

static void a_context_that_ends_opens(void)
{
    set_hp(1, true);
    launch(0), launch(1), launch(2);
    orion_collective_attend(process);
    run_all();
    CHECK(gpus[0].count + gpus[1].count + gpus[2].count > 0);
    orion_forbid_touch(process);
    orion_valve_open_all(process);
    CHECK(!orion_collective_attend(process));
    run_all();
    CHECK(gpus[0].count + gpus[1].count + gpus[2].count == 0);
    orion_allow_touch(process);
    set_hp(1, false);
}

int main(void)
{
    begin();
    names();
    one_gpu_is_not_tied();
    what_has_begun_is_finished_and_nothing_else_begins();
    what_began_while_closing_is_seen_at_the_next_look();
    on_the_cpu_the_same_holds();
    whenever_hp_comes_all_gpus_stop_at_one_number();
    out_of_step_all_are_held();
    a_context_that_ends_opens();
    puts("collective: ok");
    return 0;
}
