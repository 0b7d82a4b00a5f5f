/* Nodes that are batches of memory operations. A launch queues them like cuStreamBatchMemOp: a node whose wait is not
 * satisfied stops the graph there, and uses neither an SM nor a copy engine. */
#include <stdlib.h>
#include <string.h>

#include "graph_calls.h"

CUresult sim_node_set_batch(struct CUgraphNode_st *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    SIM_REFUSE(!batch->count, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_check_memory_ops(batch->paramArray, batch->count, batch->flags));
    size_t bytes = batch->count * sizeof *batch->paramArray;
    CUstreamBatchMemOpParams *copy = malloc(bytes);
    SIM_REFUSE(!copy, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(copy, batch->paramArray, bytes);
    free(node->batch.paramArray);
    node->batch = *batch;
    node->batch.paramArray = copy;
    return CUDA_SUCCESS;
}

static bool same_operations(const struct CUgraphNode_st *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    bool same = batch->count == node->batch.count && batch->ctx == node->batch.ctx;
    for (unsigned i = 0; same && i < batch->count; i++) {
        const CUstreamBatchMemOpParams *a = &node->batch.paramArray[i], *b = &batch->paramArray[i];
        bool wait = a->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || a->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        same = a->operation == b->operation && (!wait || !((a->waitValue.flags ^ b->waitValue.flags) & CU_STREAM_WAIT_VALUE_FLUSH));
    }
    return same;
}

bool sim_node_same_batch(const struct CUgraphNode_st *a, const struct CUgraphNode_st *b) { return same_operations(a, &b->batch); }

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    SIM_REFUSE(!batch, CUDA_ERROR_INVALID_VALUE);
    ADD(BATCH_MEM_OP, sim_node_set_batch(node, batch));
}

GETS(cuGraphBatchMemOpNodeGetParams, BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS, batch)
SETS(cuGraphBatchMemOpNodeSetParams, BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS, sim_node_set_batch)

CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch)
{
    IN_EXEC(BATCH_MEM_OP, batch);
    SIM_REFUSE(!batch->paramArray || !same_operations(copy, batch), CUDA_ERROR_INVALID_VALUE);
    return sim_node_set_batch(copy, batch);
}
