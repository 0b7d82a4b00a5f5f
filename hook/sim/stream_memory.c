/* Memory operations of streams: writes and waits that the device does on words of memory, in stream order. This
 * process's keeper does them when they are due. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "graph.h"
#include "sim.h"

#define EARLY_NS 60000u /* a wait may read its word this long before the wait is due */

struct word {
    uint64_t address, value;
    unsigned flags;
    bool wide, wait;
};

static bool satisfied(const struct word *word)
{
    uint64_t value = word->wide ? __atomic_load_n((uint64_t *)word->address, __ATOMIC_ACQUIRE)
                                : __atomic_load_n((uint32_t *)word->address, __ATOMIC_ACQUIRE);
    uint64_t mask = word->wide ? UINT64_MAX : UINT32_MAX;
    switch (word->flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ: return value == (word->value & mask);
    case CU_STREAM_WAIT_VALUE_AND: return (value & word->value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: return (~(value | word->value) & mask) != 0;
    default: /* a cyclic comparison */
        return word->wide ? (int64_t)(value - word->value) >= 0 : (int32_t)((uint32_t)value - (uint32_t)word->value) >= 0;
    }
}

static bool run(void *data)
{
    const struct word *word = data;
    if (word->wait) return satisfied(word);
    if (word->wide) __atomic_store_n((uint64_t *)word->address, word->value, __ATOMIC_RELEASE);
    else __atomic_store_n((uint32_t *)word->address, (uint32_t)word->value, __ATOMIC_RELEASE);
    return true;
}

static CUresult check(const struct word *word)
{
    SIM_REFUSE(!word->address || word->address % (word->wide ? 8 : 4), CUDA_ERROR_INVALID_VALUE);
    /* The driver refuses CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER in version 2 of the functions (seen on an H100). */
    unsigned known = word->wait ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : 0;
    return word->flags & ~known ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult capture(struct CUstream_st *stream, const struct word *word)
{
    static const CUstreamBatchMemOpType operations[2][2] = {{CU_STREAM_MEM_OP_WRITE_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_64},
                                                            {CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_MEM_OP_WAIT_VALUE_64}};
    CUstreamBatchMemOpParams op = {.operation = operations[word->wait][word->wide]};
    op.waitValue.address = word->address; /* a write has the same fields at the same places */
    op.waitValue.value64 = word->value;
    op.waitValue.flags = word->flags;
    return sim_capture_memory_op(stream, &op);
}

static CUresult submit(CUstream handle, const struct word *word)
{
    SIM_STREAM(stream, handle);
    SIM_TRY(check(word));
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return capture(stream, word);
    struct word *copy = malloc(sizeof *copy);
    SIM_REFUSE(!copy, CUDA_ERROR_OUT_OF_MEMORY);
    *copy = *word;
    return sim_submit_host(stream, run, copy, word->wait ? EARLY_NS : 0);
}

CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit(stream, &(struct word){address, value, flags, false, false});
}
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit(stream, &(struct word){address, value, flags, true, false});
}
CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit(stream, &(struct word){address, value, flags, false, true});
}
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit(stream, &(struct word){address, value, flags, true, true});
}

static bool decode(const CUstreamBatchMemOpParams *op, struct word *word)
{
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        *word = (struct word){op->waitValue.address, op->waitValue.value, op->waitValue.flags, false, true};
        return true;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        *word = (struct word){op->waitValue.address, op->waitValue.value64, op->waitValue.flags, true, true};
        return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        *word = (struct word){op->writeValue.address, op->writeValue.value, op->writeValue.flags, false, false};
        return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        *word = (struct word){op->writeValue.address, op->writeValue.value64, op->writeValue.flags, true, false};
        return true;
    default: return false;
    }
}

CUresult sim_check_memory_ops(const CUstreamBatchMemOpParams *ops, unsigned count, unsigned flags)
{
    struct word word;
    SIM_REFUSE(!ops || count > 256 || flags, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        if (ops[i].operation != CU_STREAM_MEM_OP_BARRIER && ops[i].operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
            SIM_REFUSE(!decode(&ops[i], &word), CUDA_ERROR_INVALID_VALUE);
            SIM_TRY(check(&word));
        }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags)
{
    struct word word;
    SIM_READY();
    SIM_TRY(sim_check_memory_ops(ops, count, flags)); /* all of them before any is queued */
    for (unsigned i = 0; i < count; i++)
        if (decode(&ops[i], &word)) SIM_TRY(submit(stream, &word));
    return CUDA_SUCCESS;
}
