/* Attributes of kernel nodes. Programs can read what they set; nothing else depends on them. */
#include <string.h>

#include "graph_calls.h"

#define ATTRIBUTES 64u /* more than CUDA has */

static CUlaunchAttribute *find(CUgraphNode node, CUlaunchAttributeID id)
{
    for (unsigned i = 0; i < node->call.attribute_count; i++)
        if (node->call.attributes[i].id == id) return &node->call.attributes[i];
    return NULL;
}

static bool is_attribute(CUlaunchAttributeID id) { return (unsigned)id > CU_LAUNCH_ATTRIBUTE_IGNORE && (unsigned)id < ATTRIBUTES; }

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
    NODE(node, CU_GRAPH_NODE_TYPE_KERNEL, value);
    SIM_REFUSE(!is_attribute(id), CUDA_ERROR_INVALID_VALUE);
    const CUlaunchAttribute *found = find(node, id);
    memset(value, 0, sizeof *value);
    if (found) *value = found->value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
    CUlaunchAttribute all[ATTRIBUTES];
    NODE(node, CU_GRAPH_NODE_TYPE_KERNEL, value);
    SIM_REFUSE(!is_attribute(id), CUDA_ERROR_INVALID_VALUE);
    CUlaunchAttribute *found = find(node, id);
    if (found) {
        found->value = *value;
        return CUDA_SUCCESS;
    }
    unsigned count = node->call.attribute_count;
    SIM_REFUSE(count == ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
    memset(&all[count], 0, sizeof all[count]);
    if (count) memcpy(all, node->call.attributes, count * sizeof *all);
    all[count].id = id;
    all[count].value = *value;
    return sim_node_set_attributes(node, all, count + 1);
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode target, CUgraphNode source)
{
    NODE(target, CU_GRAPH_NODE_TYPE_KERNEL, target);
    NODE(source, CU_GRAPH_NODE_TYPE_KERNEL, source);
    if (target == source) return CUDA_SUCCESS;
    return sim_node_set_attributes(target, source->call.attributes, source->call.attribute_count);
}
