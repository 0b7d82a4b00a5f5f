/* Priorities of work, for GPUs where work of several processes runs together: hp's blocks start before be's blocks
 * whenever an SM has room. Every stream of hp gets a priority one step higher, so hp's streams keep their order. Every
 * stream of be gets the lowest priority. The same holds for a priority that a program sets for a launch, a stream or a
 * kernel node; the program reads what its work got. All other launches have the priority of their stream, and a graph has
 * that of the stream that it was captured on. The default stream's priority cannot be changed. When contexts are
 * time-sliced, priorities of different processes are never compared, so the hook leaves the program's priorities alone. */
#include "streams/priorities.h"

#include <string.h>

#include "generated/driver.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/place.h"
#include "streams/stream_records.h"

static bool orders_by_priority(const struct orion_gpu *gpu)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    return orion_baseline_orders(policy->kind) || (policy->kind == ORION_POLICY_ORION && orion_runs_together(gpu));
}

/* The GPU that orders work by priority, for which the current thread makes a stream; NULL: none does. */
static const struct orion_gpu *gpu_of_thread(void)
{
    CUdevice device;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || orion_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return NULL;
    orion_owner *owner = atomic_load(&process->owner);
    const struct orion_gpu *gpu = owner != NULL ? owner(process, NULL, device) : NULL;
    return gpu != NULL && orders_by_priority(gpu) ? gpu : NULL;
}

/* The same for a stream, which may belong to another client than the thread (stream_records.h). */
static const struct orion_gpu *gpu_of_stream(struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    const struct orion_stream_record *stream_record = process != NULL ? orion_stream_record_of(process, stream) : NULL;
    return stream_record != NULL && orders_by_priority(stream_record->gpu) ? stream_record->gpu : NULL;
}

/* To a thread that launches without a current context, the driver does not say the range. 0 is the lowest one of every GPU so far. */
static int by_role(const struct orion_gpu *gpu, int priority)
{
    int lowest, highest;
    if (gpu == NULL || orion_driver.cuCtxGetStreamPriorityRange == NULL) return priority;
    if (orion_driver.cuCtxGetStreamPriorityRange(&lowest, &highest) != CUDA_SUCCESS) lowest = highest = 0;
    uint32_t role = atomic_load_explicit(&gpu->role, memory_order_relaxed);
    if (role == ORION_ROLE_BE) return lowest;
    return role == ORION_ROLE_HP && priority > highest ? priority - 1 : priority; /* a lower number is higher */
}

int orion_stream_priority(int priority) { return by_role(gpu_of_thread(), priority); }

/* A driver that cannot say where the stream is leaves the current context. */
static int green_priority(CUstream stream, int priority)
{
    CUcontext context, popped;
    struct orion_place place;
    bool is_known = orion_driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && orion_stream_place(stream, context, &place);
    if (!is_known || orion_driver.cuCtxPushCurrent_v2(place.context) != CUDA_SUCCESS) return orion_stream_priority(priority);
    priority = orion_stream_priority(priority);
    orion_driver.cuCtxPopCurrent_v2(&popped);
    return priority;
}

bool orion_green_stream_again(CUstream stream, int *priority)
{
    int given = orion_process_if_managed() != NULL ? green_priority(stream, *priority) : *priority;
    if (given == *priority) return false;
    struct orion_relaxed relaxed = orion_capture_relax();
    orion_driver.cuStreamDestroy_v2(stream);
    orion_capture_unrelax(&relaxed);
    *priority = given;
    return true;
}

const CUlaunchConfig *orion_launch_with_priority(const CUlaunchConfig *config, bool per_thread,
                                                 struct orion_changed_launch *changed)
{
    const struct orion_gpu *gpu = gpu_of_stream((struct orion_stream_name){config->hStream, per_thread});
    if (gpu == NULL || config->numAttrs > ORION_ATTRIBUTES) return config;
    memcpy(changed->attributes, config->attrs, config->numAttrs * sizeof *config->attrs);
    for (unsigned i = 0; i < config->numAttrs; i++) {
        CUlaunchAttribute *attribute = &changed->attributes[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PRIORITY) attribute->value.priority = by_role(gpu, attribute->value.priority);
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) changed->answered = config->attrs;
    }
    changed->config = *config;
    changed->config.attrs = changed->attributes;
    return &changed->config;
}

void orion_launch_answers(const struct orion_changed_launch *changed)
{
    for (unsigned i = 0; i < changed->config.numAttrs; i++)
        if (changed->attributes[i].id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
            changed->answered[i].value = changed->attributes[i].value;
}

static const CUlaunchAttributeValue *with_priority(const struct orion_gpu *gpu, const CUlaunchAttributeValue *value,
                                                   CUlaunchAttributeValue *changed)
{
    *changed = (CUlaunchAttributeValue){.priority = by_role(gpu, value->priority)}; /* the program's may be of a shorter version */
    return changed;
}

const CUlaunchAttributeValue *orion_attribute_of_stream(struct orion_stream_name stream, CUlaunchAttributeID id,
                                                        const CUlaunchAttributeValue *value, CUlaunchAttributeValue *changed)
{
    bool sets = id == CU_LAUNCH_ATTRIBUTE_PRIORITY && value != NULL;
    return sets ? with_priority(gpu_of_stream(stream), value, changed) : value;
}

const CUlaunchAttributeValue *orion_attribute_of_node(CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
                                                      CUlaunchAttributeValue *changed)
{
    bool sets = id == CU_LAUNCH_ATTRIBUTE_PRIORITY && value != NULL;
    return sets ? with_priority(gpu_of_thread(), value, changed) : value;
}

/* The other stream may be hp's, or older than the role. */
void orion_attributes_copied(struct orion_stream_name stream)
{
    const struct orion_gpu *gpu = gpu_of_stream(stream);
    if (gpu == NULL || atomic_load(&gpu->role) != ORION_ROLE_BE || orion_driver.cuStreamSetAttribute == NULL) return;
    CUlaunchAttributeValue value = {.priority = by_role(gpu, 0)};
    orion_driver.cuStreamSetAttribute(orion_stream_handle(stream), CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
}
