#include "slices/groups.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

/* Numbers and layouts of NVIDIA's open kernel modules: nv_escape.h, nv-ioctl.h, nvos.h, ctrla06c.h. Objects are named by a
 * client and a number of that client. */
enum { FREE = 0x29, CONTROL = 0x2A, ALLOCATE = 0x2B, INDIRECT = 211 }; /* calls; INDIRECT: the argument describes a call */
enum { CHANNEL_GROUP = 0xA06C };                                       /* a class */
enum { COMPUTE_FIRST = 1, COMPUTE_LAST = 8 };                          /* engine types */
enum { SET_SLICE = 0xA06C0103 };                                       /* a control; parameter: microseconds, 64 bits */

struct freed { uint32_t client, parent, object, status; };
struct control {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t size, status;
};
struct indirect {
    uint32_t call, size;
    uint64_t address;
};
struct allocation { /* the beginning of both layouts */
    uint32_t client, parent, object, class;
    uint64_t parameters;
};
struct short_allocation {
    struct allocation made;
    uint32_t size, status;
};
struct long_allocation {
    struct allocation made;
    uint64_t rights;
    uint32_t size, flags, status, unused;
};
struct group_parameters { /* the beginning */
    uint32_t errors, memory_errors, addresses, engine;
};

#define TAKEN UINT64_MAX

static uint64_t key_of(uint32_t client, uint32_t object) { return (uint64_t)client << 32 | object; }

static uint32_t used(const struct orion_time_slice *groups)
{
    uint32_t count = atomic_load_explicit(&groups->used, memory_order_acquire);
    return count < ORION_CHANNEL_GROUPS ? count : ORION_CHANNEL_GROUPS;
}

static struct orion_channel_group *find(struct orion_time_slice *groups, uint64_t key)
{
    for (uint32_t i = 0; i < used(groups); i++)
        if (atomic_load_explicit(&groups->group[i].key, memory_order_acquire) == key) return &groups->group[i];
    return NULL;
}

static struct orion_channel_group *take(struct orion_time_slice *groups, uint64_t key)
{
    struct orion_channel_group *group = find(groups, key); /* its end was not seen */
    if (group != NULL && atomic_compare_exchange_strong(&group->key, &key, TAKEN)) return group;
    for (uint32_t i = 0; i < ORION_CHANNEL_GROUPS; i++) {
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&groups->group[i].key, &none, TAKEN)) continue;
        for (uint32_t count = i; count <= i && !atomic_compare_exchange_weak(&groups->used, &count, i + 1););
        return &groups->group[i];
    }
    return NULL;
}

static void add(struct orion_process *process, orion_ioctl *call, int file, const struct allocation *made)
{
    struct orion_time_slice *groups = orion_time_slice(process);
    uint64_t key = key_of(made->client, made->object);
    struct orion_channel_group *group = key == 0 || key == TAKEN ? NULL : take(groups, key);
    if (group == NULL) return;
    atomic_store(&groups->call, call);
    atomic_store(&group->own_us, ORION_CUDA_SLICE_US);
    atomic_store(&group->now_us, ORION_CUDA_SLICE_US);
    atomic_store(&group->parent, made->parent);
    atomic_store(&group->file, file);
    atomic_store_explicit(&group->key, key, memory_order_release); /* release: the entry is complete */
}

static void saw_allocation(orion_ioctl *call, int file, const void *argument, size_t size)
{
    uint32_t status, parameters_size;
    struct allocation made;
    if (size == sizeof(struct short_allocation)) {
        const struct short_allocation *allocation = argument;
        status = allocation->status, parameters_size = allocation->size;
    } else if (size == sizeof(struct long_allocation)) {
        const struct long_allocation *allocation = argument;
        status = allocation->status, parameters_size = allocation->size;
    } else {
        return;
    }
    memcpy(&made, argument, sizeof made);
    if (made.class != CHANNEL_GROUP || status != 0 || made.parameters == 0) return;
    if (parameters_size != 0 && parameters_size < sizeof(struct group_parameters)) return;
    uint32_t engine = ((const struct group_parameters *)(uintptr_t)made.parameters)->engine;
    struct orion_process *process = engine >= COMPUTE_FIRST && engine <= COMPUTE_LAST ? orion_process_started() : NULL;
    if (process != NULL) add(process, call, file, &made);
}

/* CUDA sets a slice of its own. */
static void saw_control(struct orion_time_slice *groups, const struct control *made)
{
    if (made->command != SET_SLICE || made->status != 0 || made->size != sizeof(uint64_t) || made->parameters == 0) return;
    struct orion_channel_group *group = find(groups, key_of(made->client, made->object));
    uint64_t slice_us;
    if (group == NULL) return;
    memcpy(&slice_us, (const void *)(uintptr_t)made->parameters, sizeof slice_us);
    atomic_store(&group->own_us, slice_us);
    atomic_store(&group->now_us, slice_us);
}

/* A group ends with its parent and with its client. */
static void saw_free(struct orion_time_slice *groups, const struct freed *freed)
{
    if (freed->status != 0) return;
    for (uint32_t i = 0; i < used(groups); i++) {
        struct orion_channel_group *group = &groups->group[i];
        uint64_t key = atomic_load_explicit(&group->key, memory_order_acquire);
        if (key == 0 || key == TAKEN || key >> 32 != freed->client) continue;
        if ((uint32_t)key == freed->object || atomic_load(&group->parent) == freed->object || freed->client == freed->object)
            atomic_compare_exchange_strong(&group->key, &key, 0);
    }
}

void orion_groups_saw(orion_ioctl *call, int file, uint32_t number, const void *argument, size_t size)
{
    struct indirect indirect;
    if (number == INDIRECT) {
        if (size != sizeof indirect) return;
        memcpy(&indirect, argument, sizeof indirect);
        number = indirect.call, argument = (const void *)(uintptr_t)indirect.address, size = indirect.size;
        if (argument == NULL) return;
    }
    if (number == ALLOCATE) saw_allocation(call, file, argument, size);
    struct orion_process *process = __atomic_load_n(&orion_the_process, __ATOMIC_ACQUIRE);
    if (process == NULL || used(orion_time_slice(process)) == 0) return;
    if (number == CONTROL && size == sizeof(struct control)) saw_control(orion_time_slice(process), argument);
    if (number == FREE && size == sizeof(struct freed)) saw_free(orion_time_slice(process), argument);
}

void orion_group_set(struct orion_time_slice *groups, struct orion_channel_group *group, uint64_t slice_us)
{
    uint64_t key = atomic_load_explicit(&group->key, memory_order_acquire);
    int file = atomic_load(&group->file);
    orion_ioctl *call = atomic_load(&groups->call);
    if (key == 0 || key == TAKEN || call == NULL || atomic_load(&group->key) != key) return;
    struct control wanted = {(uint32_t)(key >> 32), (uint32_t)key, SET_SLICE, 0, (uintptr_t)&slice_us, sizeof slice_us, 0};
    int result = call(file, _IOWR('F', CONTROL, struct control), &wanted);
    if (result < 0 && (errno == EINTR || errno == EAGAIN)) return; /* tried again later */
    if (result >= 0 && wanted.status == 0) atomic_store(&group->now_us, slice_us);
    else atomic_compare_exchange_strong(&group->key, &key, 0);
}
