#include "parking/room.h"

#include <errno.h>
#include <poll.h>

#include "agent/asking.h"
#include "agent/credit.h"
#include "agent/memory_wish.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "parking/parking.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/system.h"

#define PAUSE_MS 5
#define BE_WAIT_NS (30 * ORION_SECOND)
#define STAY_COST_NS (3 * ORION_SECOND) /* an allocation that fails although there is room fails after ten stays */
#define SILENT_NS ORION_SECOND          /* an agent that does not answer is asked again after so long */
#define CONTEXT_BYTES (UINT64_C(512) << 20)

struct orion_room_request {
    struct orion_asking asking;
    _Atomic uint64_t silent;    /* the words of the grant page for which no agent has answered (returning_words); 0: none */
    _Atomic uint64_t silent_ns; /* when it had not answered last */
};
struct orion_room_requests { struct orion_room_request of[ORION_GPUS]; /* by device */ };
ORION_PART(room_requests)

/* For how long an allocation waits on this GPU at most; 0: not at all. */
static uint64_t patience(const struct orion_gpu *gpu)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    return atomic_load(&gpu->role) == ORION_ROLE_BE && grant->parks ? BE_WAIT_NS : grant->memory_wait_ns;
}

/* The same while others come back. hp that does not wait takes what is free. */
static uint64_t patience_with_returns(const struct orion_gpu *gpu)
{
    return atomic_load(&gpu->role) == ORION_ROLE_BE ? BE_WAIT_NS : patience(gpu);
}

static struct orion_gpu *waiting_gpu(struct orion_process *process, CUdevice device)
{
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    return gpu != NULL && gpu->client == 0 && patience(gpu) != 0 ? gpu : NULL;
}

/* Waits while the process leaves, is away or comes back. Returns whether it did so. */
static bool stayed_away(struct orion_process *process, uint64_t *until)
{
    uint64_t began = orion_now();
    if (!(atomic_load(&process->errands) & ORION_ERRAND_STAY)) return false;
    orion_parking_await(process);
    *until += orion_now() - began;
    *until -= STAY_COST_NS;
    return true;
}

static struct orion_room_request *request_of(struct orion_process *process, const struct orion_gpu *gpu)
{
    return &orion_room_requests(process)->of[gpu->device % (CUdevice)ORION_GPUS];
}

/* An allocation that waits for room. */
struct waiting {
    struct orion_gpu *gpu;
    uint64_t bytes, reserved; /* what it needs; what is counted for it */
};

/* From here on the driver may be asked for it at any moment. */
static void takes(const struct waiting *waiting, bool takes) { orion_memory_takes(waiting->gpu->device, waiting->reserved, takes); }

/* Asks in turn with the other threads of the process. Takes it before that: the agent says yes while it sees that. */
static enum orion_credit_answer ask(struct orion_room_request *request, const struct waiting *waiting, uint64_t until)
{
    uint64_t turn;
    if (!orion_asking_begin(&request->asking, until, &turn)) return ORION_CREDIT_LATER;
    takes(waiting, true);
    enum orion_credit_answer answer = orion_asking_ask(&request->asking, waiting->gpu, ORION_ROOM, waiting->bytes);
    if (answer != ORION_CREDIT_YES) takes(waiting, false);
    if (answer != ORION_NO_ANSWER) atomic_store(&request->silent, 0);
    orion_asking_end(&request->asking, turn);
    return answer;
}

/* What the page of an agent says of those who come back. 0: nobody does. */
static uint64_t returning_words(const struct orion_gpu *gpu)
{
    uint64_t returning = atomic_load(&gpu->grant->returning_mib); /* after what this process has published that it takes */
    return returning == 0 ? 0 : (uint64_t)atomic_load(&gpu->grant->credit_epoch) << 32 | returning;
}

/* Takes it if nobody comes back any more. */
static bool takes_alone(const struct waiting *waiting)
{
    takes(waiting, true);
    if (returning_words(waiting->gpu) == 0) return true;
    takes(waiting, false);
    return false;
}

/* Takes it after a yes only. */
static enum orion_credit_answer await_yes(struct orion_process *process, const struct waiting *waiting, uint64_t *until,
                                          uint64_t words)
{
    struct orion_gpu *gpu = waiting->gpu;
    struct orion_room_request *request = request_of(process, gpu);
    bool is_silent = words != 0 && words == atomic_load(&request->silent);
    bool stayed = false;
    uint64_t now = orion_now(), began = now, answered = 0, patience_ns = is_silent ? 0 : ORION_ASKING_PATIENCE_NS;
    for (; now < *until; now = orion_now()) {
        if (stayed_away(process, until)) {
            if (words == 0) {
                takes(waiting, true);
                return ORION_CREDIT_YES;
            }
            began = orion_now(); /* others may come back now */
            stayed = true;
            continue;
        }
        if (words != 0 && takes_alone(waiting)) return ORION_CREDIT_YES;
        enum orion_credit_answer answer = ask(request, waiting, *until);
        if (answer == ORION_CREDIT_YES || answer == ORION_CREDIT_NO) return answer;
        answered = atomic_load(&request->asking.answered_ns);
        uint64_t silent = answered < began ? began + patience_ns : answered + ORION_ASKING_PATIENCE_NS;
        if (orion_now() >= silent) return ORION_NO_ANSWER;
    }
    return answered < began && !stayed ? ORION_NO_ANSWER : ORION_CREDIT_LATER;
}

/* What the agent says, or would say because nobody comes back any more. ORION_CREDIT_LATER: it has not decided in time.
 * ORION_NO_ANSWER: it does not answer. *until is not 0. `words`: who comes back; 0: the driver has refused. Keeps errno. */
static enum orion_credit_answer await(struct orion_process *process, const struct waiting *waiting, uint64_t *until, uint64_t words)
{
    takes(waiting, false);
    enum orion_credit_answer answer = await_yes(process, waiting, until, words);
    if (answer != ORION_CREDIT_YES) takes(waiting, true); /* until the call ends, with the driver or without it */
    return answer;
}

static bool may_come(CUdevice device, uint64_t bytes, uint64_t reserved, uint64_t *until)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = waiting_gpu(process, device);
    if (gpu == NULL) return false;
    int kept = errno;
    if (*until == 0) *until = orion_now() + patience(gpu);
    else poll(NULL, 0, PAUSE_MS); /* the driver refused again after a yes: another allocation took the room */
    errno = kept;
    return await(process, &(struct waiting){gpu, bytes, reserved}, until, 0) == ORION_CREDIT_YES;
}

bool orion_room_may_come(CUdevice device, uint64_t bytes, uint64_t *until) { return may_come(device, bytes, bytes, until); }

bool orion_room_may_come_for_pool(const struct orion_pooling *pooling, uint64_t *until)
{
    return pooling->counts && may_come(pooling->device, pooling->bytes, pooling->promised, until);
}

/* In a slot with a small limit the context counts as what the limit leaves: it may be counted there already, and is not refused. */
static bool is_counted(CUdevice device, struct orion_context_room *room)
{
    size_t left = SIZE_MAX, limit = SIZE_MAX;
    if (room->bytes != 0) return true;
    orion_memory_info(device, &left, &limit);
    uint64_t bytes = left < CONTEXT_BYTES ? left : CONTEXT_BYTES;
    if (bytes != 0 && orion_allocation_may_begin(device, bytes, ORION_MEMORY_RESIDENT)) room->bytes = bytes;
    return room->bytes != 0;
}

bool orion_room_for_context(CUdevice device, struct orion_context_room *room)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    if (gpu == NULL) return false;
    orion_gpu_await_limit(gpu);
    if (waiting_gpu(process, device) == NULL || !is_counted(device, room)) return false;
    return orion_room_may_come(device, room->bytes, &room->until);
}

void orion_room_for_context_ends(CUdevice device, const struct orion_context_room *room)
{
    if (room->bytes != 0) orion_memory_reserved(device, room->bytes, ORION_MEMORY_RESIDENT, 0, CUDA_ERROR_OUT_OF_MEMORY);
}

/* The GPU on which others come back, and where the process asks before it takes memory. */
static struct orion_gpu *returning_gpu(struct orion_process *process, CUdevice device)
{
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    if (gpu == NULL || returning_words(gpu) == 0) return NULL;
    return gpu->client == 0 && patience_with_returns(gpu) != 0 ? gpu : NULL;
}

/* An agent that has died leaves its words in the page. So they cost one allocation the time in which it can be replaced. One that
 * was only stopped goes on, and its words hold again: so it is asked again, now and then and once. While nobody answers, nobody
 * knows, and the driver is asked. */
static bool ask_first(CUdevice device, uint64_t bytes, uint64_t reserved, uint64_t *until)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = returning_gpu(process, device);
    uint64_t words = gpu == NULL ? 0 : returning_words(gpu);
    if (words == 0) return true;
    struct orion_room_request *request = request_of(process, gpu);
    if (words == atomic_load(&request->silent) && orion_now() < atomic_load(&request->silent_ns) + SILENT_NS) return true;
    *until = orion_now() + patience_with_returns(gpu);
    enum orion_credit_answer answer = await(process, &(struct waiting){gpu, bytes, reserved}, until, words);
    if (answer == ORION_NO_ANSWER) {
        atomic_store(&request->silent_ns, orion_now());
        atomic_store(&request->silent, words);
    }
    return answer == ORION_CREDIT_YES || answer == ORION_NO_ANSWER || returning_words(gpu) == 0;
}

bool orion_room_ask_first(CUdevice device, uint64_t bytes, uint64_t *until) { return ask_first(device, bytes, bytes, until); }

bool orion_room_ask_first_for_context(CUdevice device, bool is_primary, struct orion_context_room *room)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    if (gpu == NULL || (is_primary && orion_process_primary(process, device) != NULL)) return true;
    orion_gpu_await_limit(gpu);
    if (returning_gpu(process, device) == NULL || !is_counted(device, room)) return true;
    return orion_room_ask_first(device, room->bytes, &room->until);
}

bool orion_room_ask_first_for_pool(const struct orion_pooling *pooling, uint64_t *until)
{
    if (!pooling->counts || returning_gpu(orion_process_if_managed(), pooling->device) == NULL) return true;
    return orion_pool_may_suffice(pooling) || ask_first(pooling->device, pooling->bytes, pooling->promised, until);
}
