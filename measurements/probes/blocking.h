/* What the probes of blocked streams share: a kernel that spins for a time, a word on which streams wait, and requests of 4 ms
 * of another process. */
#include "spinning.h"

#include <sys/mman.h>
#include <unistd.h>

#define MIB (1u << 20)

static const char source[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns){.reg .u64 %now,%end,%ns;.reg .pred %more;ld.param.u64 %ns,[ns];"
    "mov.u64 %now,%globaltimer;add.u64 %end,%now,%ns;L:mov.u64 %now,%globaltimer;setp.lt.u64 %more,%now,%end;"
    "@%more bra L;ret;}\n";

static volatile uint32_t *word; /* 0: open, so a wait on the word ends */
static CUdeviceptr word_address;

static void map_word(void)
{
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(cuMemHostRegister((void *)(uintptr_t)word, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP), "register");
    must(cuMemHostGetDevicePointer(&word_address, (void *)(uintptr_t)word, 0), "address");
}

static void await_word(CUstream stream) { must(cuStreamWaitValue32(stream, word_address, 0, CU_STREAM_WAIT_VALUE_EQ), "wait"); }

static void spin(CUstream stream, uint64_t microseconds, unsigned blocks)
{
    uint64_t nanoseconds = microseconds * 1000;
    void *parameters[] = {&nanoseconds};
    must(cuLaunchKernel(spin_kernel, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL), "launch");
}

static int by_size(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

/* Makes requests of 4 ms with pauses between them. took: how long each took, in microseconds, ascending. */
static void make_requests(CUstream stream, double *took, int count, unsigned pause_us)
{
    for (int i = 0; i < count; i++) {
        double begun = now_us();
        for (int k = 0; k < 20; k++) spin(stream, 200, 132);
        must(cuStreamSynchronize(stream), "synchronise");
        took[i] = now_us() - begun;
        usleep(pause_us);
    }
    qsort(took, (size_t)count, sizeof took[0], by_size);
}
