#include "process/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "generated/driver.h"
#include "process/page.h"
#include "process/policy.h"
#include "process/process.h"
#include "system/lock.h"
#include "system/system.h"

#define OWN_PAGES 4u                            /* policy, grant, busy, record; the neighbours' pages follow */
#define AWAIT_JOIN_NS (250 * ORION_MILLISECOND) /* since the first context; creating a context takes about as long */
#define AWAIT_LIMIT_NS (1500 * ORION_MILLISECOND)
#define AWAIT_KNOWN_LIMIT_NS (5 * ORION_SECOND)

static void *page_at(struct orion_gpu *gpu, size_t index) { return (uint8_t *)(uintptr_t)gpu->policy + index * gpu->page_step; }

static int reserve(struct orion_gpu *gpu)
{
    size_t step = orion_page_step(), bytes = (OWN_PAGES + ORION_GPU_CLIENTS_MAX) * step;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return -1;
    if (madvise(pages, bytes, MADV_DONTFORK) != 0) {
        munmap(pages, bytes);
        return -1;
    }
    gpu->page_step = step;
    gpu->policy = pages;
    gpu->grant = page_at(gpu, 1);
    gpu->busy = page_at(gpu, 2);
    gpu->record = page_at(gpu, 3);
    gpu->neighbours = page_at(gpu, OWN_PAGES);
    return 0;
}

bool orion_gpu_name(CUdevice device, char name[48])
{
    CUuuid uuid;
    if (orion_driver.cuDeviceGetUuid_v2 == NULL || orion_driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return false;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(name, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
             b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return true;
}

/* Under MPS contexts run together, and the driver reports MPS. If the driver is too old to report it, this function
 * assumes that contexts are time-sliced. */
static void find_out_sharing(struct orion_gpu *gpu)
{
    int mps = 0;
    bool known = orion_driver.cuDeviceGetAttribute != NULL &&
                 orion_driver.cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, gpu->device) == CUDA_SUCCESS;
    atomic_store(&gpu->sharing, known && mps ? ORION_SHARING_TOGETHER : ORION_SHARING_TIME_SLICED);
}

static bool is_of(const struct orion_gpu *gpu, CUdevice device) { return gpu->client == 0 && gpu->device == device; }

/* Entries are filled in order. `made_ns` is written last: it is not 0 once the entry is complete. */
struct orion_gpu *orion_gpu_find(struct orion_process *process, CUdevice device)
{
    ORION_EACH_GPU(gpu, process)
        if (is_of(gpu, device) && atomic_load(&gpu->made_ns) != 0) return gpu;
    return NULL;
}

static bool make(struct orion_process *process, CUdevice device, bool joins)
{
    uint32_t count = atomic_load(&process->gpu_count);
    if (count >= ORION_GPUS) return false;
    struct orion_gpu *gpu = &process->gpus[count];
    gpu->device = device;
    if (!orion_gpu_name(device, gpu->uuid) || reserve(gpu) != 0) return false;
    find_out_sharing(gpu);
    if (joins) atomic_fetch_add(&process->joining, 1);
    else atomic_store(&gpu->join, ORION_JOIN_UNMANAGED);
    atomic_store(&gpu->made_ns, orion_now());
    atomic_store(&process->gpu_count, count + 1);
    return true;
}

struct orion_gpu *orion_gpu_make(struct orion_process *process, CUdevice device, bool joins, bool *made)
{
    orion_lock(&process->gpu_making);
    *made = orion_gpu_find(process, device) == NULL && make(process, device, joins);
    orion_unlock(&process->gpu_making);
    return orion_gpu_find(process, device);
}

/* Waits until the join's state differs. False: so much time has passed since the process first used the GPU. */
static bool await_change(struct orion_gpu *gpu, uint32_t state, uint64_t most_ns)
{
    uint64_t now = orion_now(), until = atomic_load(&gpu->made_ns) + most_ns;
    if (now >= until) return false;
    orion_futex_wait(&gpu->join, state, until - now, false);
    return true;
}

void orion_gpu_await_join(struct orion_gpu *gpu)
{
    uint32_t state;
    while ((state = atomic_load(&gpu->join)) <= ORION_JOIN_TRYING && await_change(gpu, state, AWAIT_JOIN_NS)) continue;
}

/* The GPU's thread knows the limit before it finds that no agent answers. */
void orion_gpu_await_limit(struct orion_gpu *gpu)
{
    for (;;) {
        uint32_t state = atomic_load(&gpu->join);
        bool is_known = atomic_load(&gpu->known_limit) != 0;
        if (state == ORION_JOIN_MANAGED || (state == ORION_JOIN_UNMANAGED && !is_known)) return;
        if (!await_change(gpu, state, is_known ? AWAIT_KNOWN_LIMIT_NS : AWAIT_LIMIT_NS)) return;
    }
}

/* -- Pages ----------------------------------------------------------------------------------------------------------- */

static const uint32_t kinds[] = {ORION_PAGE_POLICY, ORION_PAGE_GRANT, ORION_PAGE_BUSY, ORION_PAGE_RECORD};

int orion_gpu_map(struct orion_gpu *gpu, enum orion_gpu_page page, int fd)
{
    bool own = page == ORION_GPU_BUSY || page == ORION_GPU_RECORD;
    return orion_page_is(fd, kinds[page], gpu->uuid) ? orion_page_map_over(page_at(gpu, page), fd, own) : -1;
}

int orion_gpu_map_job(struct orion_gpu *gpu, uint32_t rank, int fd)
{
    struct orion_page_header header;
    if (rank >= ORION_RANKS_MAX || !orion_page_has_kind(fd, ORION_PAGE_JOB, &header)) return -1;
    struct orion_job_page *page = atomic_load(&gpu->job);
    if (page != NULL) {
        /* Waits in streams may refer to the first page, and all peers that have it keep it, too. */
        if (memcmp(page->header.gpu, header.gpu, sizeof header.gpu) != 0) return -1;
        atomic_store(&gpu->rank, rank);
        return 0;
    }
    page = mmap(NULL, ORION_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) return -1;
    madvise(page, ORION_PAGE_SIZE, MADV_DONTFORK);
    atomic_store(&gpu->rank, rank);
    atomic_store(&gpu->job, page);
    return 0;
}

/* At any moment a reader of the list sees every hp client that stays. So this function writes a new client before it
 * raises the count, and unlist_neighbour copies the last client into the gap before it lowers the count. */
static void list_neighbour(struct orion_gpu *gpu, uint32_t client_index)
{
    uint32_t count = atomic_load(&gpu->hp_count);
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load(&gpu->hp_client_index[i]) == client_index) return;
    atomic_store(&gpu->hp_client_index[count], (uint16_t)client_index);
    atomic_store(&gpu->hp_count, count + 1);
}

static void unlist_neighbour(struct orion_gpu *gpu, uint32_t client_index)
{
    uint32_t count = atomic_load(&gpu->hp_count);
    for (uint32_t i = 0; i < count; i++) {
        if (atomic_load(&gpu->hp_client_index[i]) != client_index) continue;
        atomic_store(&gpu->hp_client_index[i], atomic_load(&gpu->hp_client_index[count - 1]));
        atomic_store(&gpu->hp_count, count - 1);
        return;
    }
}

int orion_gpu_map_neighbour(struct orion_gpu *gpu, uint32_t client_index, uint32_t generation, int fd)
{
    if (client_index >= ORION_GPU_CLIENTS_MAX || generation == 0 || !orion_page_is(fd, ORION_PAGE_BUSY, gpu->uuid)) return -1;
    if (orion_page_map_over(page_at(gpu, OWN_PAGES + client_index), fd, false) != 0) return -1;
    atomic_store(&gpu->given_up_on[client_index], 0);
    atomic_store(&gpu->seen_progress[client_index], 0);
    atomic_store(&gpu->hp_generation[client_index], generation);
    list_neighbour(gpu, client_index);
    return 0;
}

void orion_gpu_drop_neighbour(struct orion_gpu *gpu, uint32_t client_index, uint32_t generation)
{
    if (client_index >= ORION_GPU_CLIENTS_MAX || atomic_load(&gpu->hp_generation[client_index]) != generation) return;
    atomic_store(&gpu->hp_generation[client_index], 0);
    unlist_neighbour(gpu, client_index);
    orion_page_map_over(page_at(gpu, OWN_PAGES + client_index), -1, false);
}

static bool is_listed(const struct orion_client_index *listed, uint32_t count, uint32_t client_index)
{
    for (uint32_t i = 0; i < count; i++)
        if (listed[i].client_index == client_index) return true;
    return false;
}

void orion_gpu_drop_other_neighbours(struct orion_gpu *gpu, const struct orion_client_index *listed, uint32_t count)
{
    for (uint32_t i = 0; i < ORION_GPU_CLIENTS_MAX; i++) {
        uint32_t generation = atomic_load(&gpu->hp_generation[i]);
        if (generation != 0 && !is_listed(listed, count, i)) orion_gpu_drop_neighbour(gpu, i, generation);
    }
}
