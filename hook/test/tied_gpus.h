/* GPUs of one process that launch collectives, for tests of the core alone. Each has one stream, of waits and writes, which the
 * test runs. */
#ifndef ORION_TEST_TIED_GPUS_H
#define ORION_TEST_TIED_GPUS_H

#include "be/collective.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/work.h"
#include "check.h"
#include "fake_driver.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define GPUS 3

static struct orion_process *process;
static struct orion_gpu *gpus[GPUS];

/* -- GPUs: each has one stream, of waits and writes ------------------------------------------------------------------- */

struct operation {
    bool wait;
    uint32_t *word, value;
};
static struct {
    struct operation queue[64];
    unsigned first, count;
} devices[GPUS];
static struct orion_stream_record stream_records[GPUS];

static CUresult put(CUstream stream, struct operation operation)
{
    unsigned device = (unsigned)(uintptr_t)stream % 16;
    CHECK(device < GPUS && devices[device].count < 64);
    devices[device].queue[(devices[device].first + devices[device].count++) % 64] = operation;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    CHECK(flags == CU_STREAM_WAIT_VALUE_GEQ);
    return put(stream, (struct operation){true, (uint32_t *)(uintptr_t)address, value});
}
static CUresult CUDAAPI fake_write(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    CHECK(flags == CU_STREAM_WRITE_VALUE_DEFAULT); /* the driver refuses others */
    return put(stream, (struct operation){false, (uint32_t *)(uintptr_t)address, value});
}

/* Run the next operation of a GPU's stream if it can continue. */
static bool step(unsigned device)
{
    if (devices[device].count == 0) return false;
    struct operation *next = &devices[device].queue[devices[device].first];
    uint32_t value = __atomic_load_n(next->word, __ATOMIC_SEQ_CST);
    if (next->wait && (int32_t)(value - next->value) < 0) return false;
    if (!next->wait) __atomic_store_n(next->word, next->value, __ATOMIC_SEQ_CST);
    devices[device].first = (devices[device].first + 1) % 64;
    devices[device].count--;
    return true;
}

static void run_all(void)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (unsigned i = 0; i < GPUS; i++)
            while (step(i)) moved = true;
    }
}

/* -- hp --------------------------------------------------------------------------------------------------------------- */

static struct orion_policy_page *policy(unsigned device) { return (struct orion_policy_page *)(uintptr_t)gpus[device]->policy; }
static void set_hp(unsigned device, bool busy)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpus[device]->neighbours;
    atomic_store(&page->heartbeat_ns, orion_now());
    atomic_store(&page->state, busy ? ORION_BUSY : ORION_IDLE);
}

static void set_watcher(unsigned device, bool runs) { atomic_store(&orion_be(gpus[device])->valve.watched, runs ? 2 : 0); }

static void begin(void)
{
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    orion_driver.cuStreamWriteValue32_v2 = fake_write;
    fake_pinned_memory();
    gpus[0] = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    for (unsigned i = 0; i < GPUS; i++) {
        if (i > 0) gpus[i] = fake_gpu_of((CUdevice)i, ORION_ROLE_BE);
        atomic_store(&gpus[i]->hp_count, 1);
        policy(i)->copy[0].kind = ORION_POLICY_GATE;
        atomic_store(&policy(i)->hp_clients, 1);
        set_watcher(i, true); /* the test looks as the watcher does */
        stream_records[i].gpu = gpus[i];
        stream_records[i].handle = (CUstream)(uintptr_t)(0x100 + i);
    }
}

#endif
