/* The channel groups of this process, and controls of them. A channel group is what the GPU time-slices. CUDA creates them
 * by calls of the kernel driver; this file sees them because its `ioctl` is found before the C library's (link with
 * -rdynamic). Numbers and layouts are those of NVIDIA's open kernel modules 580: nv_escape.h, nvos.h, ctrla06c.h. */
#ifndef LONG_KERNELS_GROUPS_H
#define LONG_KERNELS_GROUPS_H

#include "../sections.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/ioctl.h>

#define GROUPS_MOST 64
#define ASSUMED_SLICE_US 2000 /* where the usual slice is not shown: about what was measured between two processes */
enum { CONTROL = 0x2A, ALLOCATE = 0x2B, INDIRECT = 211 };                                   /* calls; INDIRECT: of a call */
enum { CHANNEL_GROUP = 0xA06C, COMPUTE_FIRST = 1, COMPUTE_LAST = 8 };                        /* class; engine types */
enum { SCHEDULE = 0xA06C0101, SET_SLICE = 0xA06C0103, GET_SLICE, PREEMPT, SET_INTERLEAVE = 0xA06C0107 }; /* controls */
#define REFUSED_BY_THE_SYSTEM 0xFFFF0000u /* plus errno: the call did not reach the driver's control */

/* Both layouts of an allocation begin so. The status is at byte 28 of the short one, and at byte 40 of the long one. */
struct allocation { uint32_t client, parent, object, class; uint64_t parameters; };
struct control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; };
struct indirect { uint32_t call, size; uint64_t address; };

/* slice_us: what CUDA itself has set; 0: nothing seen */
struct group { int file; uint32_t client, object, engine; uint64_t slice_us; };
static struct group groups[GROUPS_MOST];
static int group_count;
static int calls_seen; /* of the kernel driver */
static _Thread_local bool controlling; /* the call is one of ours */

static void saw_allocation(int file, const struct allocation *made, size_t size)
{
    uint32_t status, engine = 0;
    if (size != 32 && size != 48) return;
    memcpy(&status, (const char *)made + (size == 32 ? 28 : 40), sizeof status);
    if (made->class != CHANNEL_GROUP || status) return;
    if (made->parameters) memcpy(&engine, (const char *)(uintptr_t)made->parameters + 12, sizeof engine);
    int at = __atomic_fetch_add(&group_count, 1, __ATOMIC_SEQ_CST);
    if (at < GROUPS_MOST) groups[at] = (struct group){file, made->client, made->object, engine, 0};
}

static void saw_control(const struct control *made, size_t size)
{
    if (size != sizeof *made || made->command != SET_SLICE || made->status || made->size != 8) return;
    for (int i = 0; i < group_count && i < GROUPS_MOST; i++)
        if (groups[i].client == made->client && groups[i].object == made->object)
            memcpy(&groups[i].slice_us, (const void *)(uintptr_t)made->parameters, 8);
}

static void saw(int file, unsigned call, void *argument, size_t size)
{
    __atomic_fetch_add(&calls_seen, 1, __ATOMIC_RELAXED);
    if (call == INDIRECT && size == sizeof(struct indirect)) {
        struct indirect *inner = argument;
        saw(file, inner->call, (void *)(uintptr_t)inner->address, inner->size);
    }
    if (call == ALLOCATE) saw_allocation(file, argument, size);
    if (call == CONTROL) saw_control(argument, size);
}

int ioctl(int file, unsigned long request, ...)
{
    static int (*next)(int, unsigned long, ...);
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
    int result = next(file, request, argument);
    int error = errno;
    if (!controlling && _IOC_TYPE(request) == 'F' && argument) saw(file, _IOC_NR(request), argument, _IOC_SIZE(request));
    errno = error;
    return result;
}

/* Returns the driver's status; 0: success. */
static uint32_t control_of(const struct group *group, uint32_t command, void *parameters, uint32_t size)
{
    struct control wanted = {group->client, group->object, command, 0, (uintptr_t)parameters, size, 0};
    controlling = true;
    int result = ioctl(group->file, _IOWR('F', CONTROL, struct control), &wanted);
    controlling = false;
    return result < 0 ? REFUSED_BY_THE_SYSTEM + (uint32_t)errno : wanted.status;
}

static bool is_compute(const struct group *group) { return group->engine >= COMPUTE_FIRST && group->engine <= COMPUTE_LAST; }

/* Sends a control to each compute group of this process. Returns the first status that is not success. */
static uint32_t control_all(uint32_t command, const void *parameters, uint32_t size)
{
    uint32_t first = 0;
    for (int i = 0; i < group_count && i < GROUPS_MOST; i++) {
        char copy[16];
        memcpy(copy, parameters, size);
        uint32_t status = is_compute(&groups[i]) ? control_of(&groups[i], command, copy, size) : 0;
        first = first ? first : status;
    }
    return first;
}

static uint32_t set_slice(uint64_t us) { return control_all(SET_SLICE, &us, sizeof us); }
static uint32_t set_interleave(uint32_t level) { return control_all(SET_INTERLEAVE, &level, sizeof level); }

/* Takes the groups off the GPU once, and waits until they are. */
static uint32_t preempt(void)
{
    struct { uint8_t wait, own_limit; uint32_t limit_us; } wanted = {1, 1, 100000};
    return control_all(PREEMPT, &wanted, sizeof wanted);
}

/* Takes the groups off the GPU until they are scheduled again. */
static uint32_t schedule(bool enable)
{
    struct { uint8_t enable, skip_submit, skip_enable; } wanted = {enable, 0, 0};
    return control_all(SCHEDULE, &wanted, sizeof wanted);
}

/* The slice that CUDA gave the first compute group. Before any `set_slice`. */
static uint64_t usual_slice_us(void)
{
    for (int i = 0; i < group_count && i < GROUPS_MOST; i++) {
        uint64_t now = 0;
        if (!is_compute(&groups[i])) continue;
        if (control_of(&groups[i], GET_SLICE, &now, sizeof now) == 0 && now) return now;
        if (groups[i].slice_us) return groups[i].slice_us;
    }
    return ASSUMED_SLICE_US;
}

static int compute_groups(void)
{
    int count = 0;
    for (int i = 0; i < group_count && i < GROUPS_MOST; i++) count += is_compute(&groups[i]);
    return count;
}

static void print_groups(const char *who)
{
    for (int i = 0; i < group_count && i < GROUPS_MOST; i++) {
        uint64_t now = 0;
        uint32_t status = control_of(&groups[i], GET_SLICE, &now, sizeof now);
        emit("\"what\": \"a channel group\", \"of\": \"%s\", \"engine\": %u, \"set_by_cuda_us\": %llu, \"get_status\": %u, \"slice_us\": %llu",
             who, groups[i].engine, (unsigned long long)groups[i].slice_us, status, (unsigned long long)now);
    }
}

#endif
