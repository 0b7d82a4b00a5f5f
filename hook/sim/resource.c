/* Sets of SMs as programs see them: a program queries a set, splits it, and makes a green context from a part.
 *
 * The program owns the CUdevResource structure, so the driver stores the set in the structure's reserved bytes. A split
 * makes groups of the sizes of compute capability 9: multiples of 8 SMs, or of 2 (one TPC) if the program asks to
 * ignore co-scheduling. */
#include <string.h>

#include "dispatch.h"
#include "green.h"

#define MARK 0x534d5345u
#define GROUP 8u      /* SMs that are co-scheduled */
#define FINE_GROUP 2u /* SMs of one TPC */

struct content {
    uint32_t mark;
    int32_t device;
    uint64_t split; /* number of the split that made this set; 0: a query made it */
    uint64_t group; /* number in that split, from 1; 0: a query's set or a remainder, which can be split */
    struct sim_sms sms;
};

_Static_assert(sizeof(struct content) <= sizeof(((CUdevResource *)NULL)->_internal_padding), "resource");

static void write_resource(CUdevResource *resource, const struct content *content, unsigned alignment)
{
    *resource = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM};
    resource->sm.smCount = (unsigned)sim_count_sms(&content->sms);
    resource->sm.minSmPartitionSize = alignment;
    resource->sm.smCoscheduledAlignment = alignment;
    memcpy(resource->_internal_padding, content, sizeof *content);
    if (!resource->sm.smCount) *resource = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_INVALID};
}

static CUresult read_resource(const CUdevResource *resource, struct content *content)
{
    SIM_REFUSE(!resource, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(resource->type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    memcpy(content, resource->_internal_padding, sizeof *content);
    return content->mark == MARK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_resource_describe(CUdevResource *resource, CUdevResourceType type, int device, const struct sim_sms *sms)
{
    SIM_REFUSE(!resource, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    struct content content = {.mark = MARK, .device = device, .sms = *sms};
    write_resource(resource, &content, GROUP);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SIM_READY();
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    struct sim_sms all = sim_all_sms();
    return sim_resource_describe(resource, type, device, &all);
}

/* Takes the `count` lowest SMs out of `from`. */
static struct sim_sms take(struct sim_sms *from, unsigned count)
{
    struct sim_sms taken = {{0}};
    for (unsigned i = 0; i < SIM_SM_WORDS; i++)
        for (; from->word[i] && count; count--) {
            uint64_t bit = from->word[i] & -from->word[i];
            taken.word[i] |= bit;
            from->word[i] &= ~bit;
        }
    return taken;
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *count, const CUdevResource *input,
                                             CUdevResource *remainder, unsigned flags, unsigned least)
{
    static _Atomic uint64_t splits;
    const unsigned known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    struct content content;
    SIM_READY();
    SIM_REFUSE(!count || (result && !*count) || (flags & ~known), CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(read_resource(input, &content));
    unsigned all = (unsigned)sim_count_sms(&content.sms);
    SIM_REFUSE(least > all, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(content.group, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    unsigned alignment = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? FINE_GROUP : GROUP;
    unsigned size = least ? (least + alignment - 1) / alignment * alignment : alignment;
    unsigned groups = all / size < *count || !result ? all / size : *count;
    SIM_REFUSE(!groups, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    struct content rest = content;
    rest.split = content.split = atomic_fetch_add(&splits, 1) + 1;
    for (unsigned i = 0; i < groups; i++) {
        content.group = i + 1;
        content.sms = take(&rest.sms, size);
        if (result) write_resource(&result[i], &content, alignment);
    }
    if (remainder) write_resource(remainder, &rest, alignment);
    *count = groups;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *made, CUdevResource *resources, unsigned count)
{
    struct content first, more;
    SIM_READY();
    SIM_REFUSE(!made || !resources || !count, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(read_resource(&resources[0], &first));
    for (unsigned i = 1; i < count; i++) {
        SIM_TRY(read_resource(&resources[i], &more));
        SIM_REFUSE(more.device != first.device || more.split != first.split || !more.split,
                   CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        for (unsigned word = 0; word < SIM_SM_WORDS; word++) first.sms.word[word] |= more.sms.word[word];
    }
    struct CUdevResourceDesc_st *described = sim_handle_new(SIM_RESOURCES, sizeof *described);
    SIM_REFUSE(!described, CUDA_ERROR_OUT_OF_MEMORY);
    described->device = first.device;
    described->sms = first.sms;
    *made = described;
    return CUDA_SUCCESS;
}
