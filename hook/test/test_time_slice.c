/* Time slices of be's channel groups, with a fake kernel driver behind the hook's `ioctl`. */
#include "check.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "fake_driver.h"
#include "interposition/ioctl.h"
#include "process/policy.h"
#include "slices/time_slice.h"

#define DRIVER 77
#define CLIENT 5
#define DEVICE 6
#define GROUPS 100 /* objects from here on */

struct allocation {
    uint32_t client, parent, object, class;
    uint64_t parameters, rights;
    uint32_t size, flags, status, unused;
};
struct short_allocation {
    uint32_t client, parent, object, class;
    uint64_t parameters;
    uint32_t size, status;
};
struct control {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t size, status;
};
struct freed { uint32_t client, parent, object, status; };
struct indirect {
    uint32_t call, size;
    uint64_t address;
};

/* The C library declares ioctl as a leaf: a direct call would let the compiler assume that the fake is not called. */
static orion_ioctl *volatile as_program = ioctl;
static uint64_t slice_us[2 * ORION_CHANNEL_GROUPS]; /* of each object of the fake */
static unsigned calls, sets;
static bool refuses;
static struct orion_process *process;
static struct orion_gpu *gpu;

static int fake_ioctl(int file, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    struct control *control = va_arg(rest, void *);
    va_end(rest);
    calls++;
    if (file != DRIVER) return errno = ENOTTY, -1;
    if (request != _IOWR('F', 0x2A, struct control)) return 0;
    CHECK(control->client == CLIENT && control->command == 0xA06C0103 && control->size == 8);
    sets++;
    control->status = refuses ? 0x1B : 0;
    if (!refuses) memcpy(&slice_us[control->object - GROUPS], (const void *)(uintptr_t)control->parameters, 8);
    return 0;
}

static void allocate(uint32_t object, uint32_t engine, uint32_t status)
{
    uint32_t parameters[5] = {0, 0, 0, engine, 0};
    struct allocation made = {CLIENT, DEVICE, object, 0xA06C, (uintptr_t)parameters, 0, sizeof parameters, 0, status, 0};
    CHECK(as_program(DRIVER, _IOWR('F', 0x2B, struct allocation), &made) == 0);
}

static void allocate_indirectly(uint32_t object)
{
    uint32_t parameters[5] = {0, 0, 0, 1, 0};
    struct short_allocation made = {CLIENT, DEVICE, object, 0xA06C, (uintptr_t)parameters, sizeof parameters, 0};
    struct indirect call = {0x2B, sizeof made, (uintptr_t)&made};
    CHECK(as_program(DRIVER, _IOWR('F', 211, struct indirect), &call) == 0);
}

static void set_as_cuda(uint32_t object, uint64_t us)
{
    struct control wanted = {CLIENT, object, 0xA06C0103, 0, (uintptr_t)&us, 8, 0};
    CHECK(as_program(DRIVER, _IOWR('F', 0x2A, struct control), &wanted) == 0);
}

static void release(uint32_t parent, uint32_t object)
{
    struct freed freed = {CLIENT, parent, object, 0};
    CHECK(as_program(DRIVER, _IOWR('F', 0x29, struct freed), &freed) == 0);
}

/* As the GPU's thread and then a launch do; returns how often the slice of a group was set. */
static unsigned settle(void)
{
    unsigned before = sets;
    orion_time_slice_decide(process);
    if (orion_time_slice_due(process)) orion_time_slice_apply(process);
    CHECK(!orion_time_slice_due(process));
    return sets - before;
}

static struct orion_policy_page *page(struct orion_gpu *of) { return (struct orion_policy_page *)(uintptr_t)of->policy; }

static void have(struct orion_gpu *of, uint32_t kind, uint64_t us, uint32_t hp_clients, uint32_t be_clients)
{
    page(of)->copy[0].kind = kind;
    page(of)->copy[0].be_slice_ns = us * 1000;
    atomic_store(&page(of)->hp_clients, hp_clients);
    atomic_store(&page(of)->be_clients, be_clients);
    atomic_store(&of->sharing, ORION_SHARING_TIME_SLICED);
}

static uint64_t of(uint32_t object) { return slice_us[object - GROUPS]; }

static void foreign_calls_go_on_unchanged(void)
{
    unsigned before = calls;
    int value = 3;
    errno = 0;
    CHECK(as_program(1, _IOWR('F', 0x2B, struct allocation), &value) == -1 && errno == ENOTTY);
    errno = EBUSY;
    CHECK(as_program(DRIVER, _IOWR('F', 0x2B, int), &value) == 0 && errno == EBUSY);
    CHECK(as_program(DRIVER, 0x4600, NULL) == 0 && as_program(DRIVER, 0x5413, &value) == 0);
    CHECK(calls == before + 4 && settle() == 0);
}

static void the_slice_is_short_beside_hp_only(void)
{
    allocate(GROUPS, 1, 0);
    set_as_cuda(GROUPS, 2048);
    allocate(GROUPS + 1, 9, 0);    /* a copy engine */
    allocate(GROUPS + 2, 1, 0x22); /* failed */
    have(gpu, ORION_POLICY_ORION, 200, 0, 1);
    CHECK(settle() == 0 && of(GROUPS) == 2048);
    have(gpu, ORION_POLICY_ORION, 200, 1, 1);
    CHECK(settle() == 1 && of(GROUPS) == 200 && of(GROUPS + 1) == 0 && of(GROUPS + 2) == 0);
    CHECK(settle() == 0);
    have(gpu, ORION_POLICY_GATE, 200, 1, 1);
    CHECK(settle() == 0 && of(GROUPS) == 200);
    have(gpu, ORION_POLICY_NONE, 200, 1, 1);
    CHECK(settle() == 1 && of(GROUPS) == 2048);
    have(gpu, ORION_POLICY_GATE, 0, 1, 1);
    CHECK(settle() == 0 && of(GROUPS) == 2048);
    have(gpu, ORION_POLICY_GATE, 200, 1, 1);
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    CHECK(settle() == 0 && of(GROUPS) == 2048);
    have(gpu, ORION_POLICY_GATE, 200, 1, 1);
}

static void other_be_clients_forbid_it_while_they_are_active(void)
{
    struct orion_grant *grant = &((struct orion_grant_page *)(uintptr_t)gpu->grant)->copy[0];
    CHECK(settle() == 1 && of(GROUPS) == 200);
    page(gpu)->copy[0].window_ns = 400000;
    grant->window_share_ns = 200000; /* the agent divides the window among the active clients */
    have(gpu, ORION_POLICY_GATE, 200, 1, 2);
    CHECK(settle() == 1 && of(GROUPS) == 2048);
    grant->window_share_ns = 400000;
    CHECK(settle() == 1 && of(GROUPS) == 200);
    grant->window_share_ns = 200000;
    CHECK(settle() == 1 && of(GROUPS) == 2048);
    have(gpu, ORION_POLICY_GATE, 200, 1, 1);
}

static void later_groups_follow_and_cudas_value_comes_back(void)
{
    CHECK(settle() == 1);
    allocate_indirectly(GROUPS + 3);
    set_as_cuda(GROUPS + 3, 1000);
    CHECK(settle() == 1 && of(GROUPS + 3) == 200);
    set_as_cuda(GROUPS, 4096); /* CUDA changes it once more */
    CHECK(settle() == 1 && of(GROUPS) == 200);
    atomic_store(&page(gpu)->hp_clients, 0);
    CHECK(settle() == 2 && of(GROUPS) == 4096 && of(GROUPS + 3) == 1000);
    release(DEVICE, GROUPS + 3);
    release(DEVICE, 12345);
    atomic_store(&page(gpu)->hp_clients, 1);
    CHECK(settle() == 1 && of(GROUPS) == 200 && of(GROUPS + 3) == 1000);
}

static void hps_slice_is_long_beside_be_only(void)
{
    atomic_store(&gpu->role, ORION_ROLE_HP);
    page(gpu)->copy[0].hp_slice_ns = 10000000;
    CHECK(settle() == 1 && of(GROUPS) == 10000);
    have(gpu, ORION_POLICY_GATE, 200, 2, 1); /* hp clients share the GPU in CUDA's slices */
    CHECK(settle() == 1 && of(GROUPS) == 4096);
    have(gpu, ORION_POLICY_GATE, 200, 1, 1);
    CHECK(settle() == 1 && of(GROUPS) == 10000);
    have(gpu, ORION_POLICY_GATE, 200, 1, 0);
    CHECK(settle() == 1 && of(GROUPS) == 4096);
    atomic_store(&gpu->role, ORION_ROLE_BE);
    have(gpu, ORION_POLICY_GATE, 200, 1, 1);
    CHECK(settle() == 1 && of(GROUPS) == 200);
}

static void an_hp_gpu_of_the_process_forbids_it(void)
{
    struct orion_gpu *second = fake_gpu_of(1, ORION_ROLE_HP);
    have(second, ORION_POLICY_ORION, 200, 1, 0);
    CHECK(settle() == 1 && of(GROUPS) == 4096);
    atomic_store(&second->role, ORION_ROLE_BE); /* and one without hp does not */
    have(second, ORION_POLICY_ORION, 200, 0, 1);
    CHECK(settle() == 1 && of(GROUPS) == 200);
    have(second, ORION_POLICY_ORION, 100, 1, 1);
    CHECK(settle() == 1 && of(GROUPS) == 100);
    atomic_store(&second->role, ORION_ROLE_NONE);
    CHECK(settle() == 1 && of(GROUPS) == 200);
}

static void a_refusal_is_final(void)
{
    release(CLIENT, DEVICE); /* the groups end with their device */
    allocate(GROUPS + 4, 1, 0);
    refuses = true;
    errno = EBUSY;
    CHECK(settle() == 1 && errno == EBUSY && settle() == 0);
    refuses = false;
    CHECK(settle() == 0);
}

static void more_groups_than_the_table_holds(void)
{
    release(0, CLIENT);
    for (uint32_t i = 0; i < ORION_CHANNEL_GROUPS + 9; i++) allocate(GROUPS + i, 1, 0);
    CHECK(settle() == ORION_CHANNEL_GROUPS && settle() == 0);
    release(0, CLIENT);
    allocate(GROUPS, 1, 0);
    CHECK(settle() == 1);
}

int main(void)
{
    atomic_store(&orion_next_ioctl, fake_ioctl);
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    foreign_calls_go_on_unchanged();
    the_slice_is_short_beside_hp_only();
    other_be_clients_forbid_it_while_they_are_active();
    later_groups_follow_and_cudas_value_comes_back();
    hps_slice_is_long_beside_be_only();
    an_hp_gpu_of_the_process_forbids_it();
    a_refusal_is_final();
    more_groups_than_the_table_holds();
    return 0;
}
