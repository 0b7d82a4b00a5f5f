#include "nvml/room.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "memory/memory.h"
#include "process/gpu.h"
#include "process/process.h"

/* Whether this process has used the GPU by CUDA, and its device. */
static bool device_of(const char *uuid, CUdevice *device)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL) return false;
    ORION_EACH_GPU(gpu, process) {
        *device = gpu->device;
        if (strcmp(gpu->uuid, uuid) == 0) return true;
    }
    return false;
}

bool orion_room_of(const char *uuid, struct orion_room *room)
{
    CUdevice device;
    if (!device_of(uuid, &device)) return orion_view_room(uuid, room);
    size_t left = SIZE_MAX, limit = SIZE_MAX;
    int kept = errno;
    orion_memory_info(device, &left, &limit);
    errno = kept;
    *room = (struct orion_room){
        .limit = limit,
        .left = left < limit ? left : limit,
        .leaving = orion_memory_leaves(device),
        .beyond = orion_memory_is_beyond(device),
    };
    return limit != SIZE_MAX;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void orion_room_show(const struct orion_room *room, struct orion_nvml_memory *memory)
{
    memory->total = room->beyond ? room->limit : least(memory->total, room->limit);
    memory->free = room->beyond ? room->left : least(memory->total, least(memory->free + room->leaving, room->left));
    memory->used = memory->total - memory->free;
}

/* What the slot may have but the GPU lacks is reserved: others or the driver hold it. */
void orion_room_show_v2(const struct orion_room *room, struct orion_nvml_memory_v2 *memory)
{
    if (memory->version != ORION_NVML_MEMORY_V2) return;
    struct orion_nvml_memory plain = {memory->total, memory->free, memory->used};
    orion_room_show(room, &plain);
    memory->total = plain.total;
    memory->free = plain.free;
    memory->used = least(plain.used, room->limit - room->left);
    memory->reserved = plain.used - memory->used;
}

static bool exists(unsigned process_id)
{
    return process_id != 0 && process_id <= INT32_MAX && (kill((pid_t)process_id, 0) == 0 || errno != ESRCH);
}

unsigned orion_room_show_processes(void *entries, unsigned count, size_t size)
{
    unsigned kept = 0, process_id;
    int before = errno;
    for (unsigned i = 0; i < count; i++) {
        char *entry = (char *)entries + i * size;
        memcpy(&process_id, entry, sizeof process_id);
        if (!exists(process_id)) continue;
        memmove((char *)entries + kept++ * size, entry, size);
    }
    errno = before;
    return kept;
}
