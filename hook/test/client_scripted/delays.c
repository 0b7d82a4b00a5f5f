/* Kernels are timed as XLA times its variants: a kernel before them spins until the host has launched all. So the time between the
 * two events does not contain the launches. */
#include "scripted.h"

static CUfunction delay;
static _Atomic uint32_t word; /* the delay kernel adds 1 when it begins, and ends at 2 */

/* N timings of kernels of US microseconds each, COUNT in each timing. */
double timings(const struct arguments *at)
{
    CUstream stream = stream_of(0);
    static const char code[] = "orion-sim 1\nkernel delay duration_us=@0 meets=@2 params=8,8,8,8\n";
    CUresult result = delay != NULL ? CUDA_SUCCESS : load_code(&delay, code, "delay");
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++) {
        uint64_t microseconds = 1, unused = 0, address = (uint64_t)(uintptr_t)&word, number = 2, began = now();
        void *parameters[] = {&microseconds, &unused, &address, &number};
        word = 0;
        result = cuLaunchKernel(delay, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
        for (long j = 0; (j == 0 || j < (long)at->c) && result == CUDA_SUCCESS; j++)
            result = launch_on(used->timed, stream, (uint64_t)at->b);
        word++;
        if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream);
        show(now() - began);
    }
    return result;
}
