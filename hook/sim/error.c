/* The names and the descriptions of CUDA's errors. */
#include "sim.h"

static const struct {
    CUresult error;
    const char *name, *sentence;
} errors[] = {
#define ERROR(name, sentence) {name, #name, sentence},
#include "errors.inc"
#undef ERROR
};

static int find(CUresult error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error) return (int)i;
    return -1;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name)
{
    SIM_REFUSE(!name, CUDA_ERROR_INVALID_VALUE);
    int at = find(error);
    *name = at < 0 ? NULL : errors[at].name;
    return at < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **sentence)
{
    SIM_REFUSE(!sentence, CUDA_ERROR_INVALID_VALUE);
    int at = find(error);
    *sentence = at < 0 ? NULL : errors[at].sentence;
    return at < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
