/* Measures what helps hp beside kernels that the hook cannot interrupt: one of 1.6 ms, as a GEMM of 8192, and one of 50 ms.
 * No setting of the GPU is changed; the processes control only their own channel groups. On a machine with an NVIDIA GPU
 * and the headers of CUDA 13:
 *
 *   gcc -O2 -Wall -Wextra -rdynamic -I/usr/local/cuda/include measurements/probes/long_kernels.c -o /tmp/long_kernels \
 *       -L/usr/local/cuda/lib64/stubs -lcuda -lm -lpthread -ldl && /tmp/long_kernels > long_kernels.jsonl
 *   /tmp/long_kernels T           only this section
 *   LONG_KERNELS_PROGRAM="python3 gemm.py" /tmp/long_kernels C    C also runs this program beside hp
 *
 * Output: one JSON object a line; what it does now, on stderr. All sections take about four minutes. A section is a process
 * with a limit in time. `python -m measurements.long_kernels` makes tables of the output.
 *
 *   T  time slices of the processes' own channel groups; ends if the driver refuses
 *   P  be preempts its own channel groups when hp arrives
 *   E  a kernel of hp's that makes the GPU change to hp while hp's input copy is on its way
 *   C  the clock of the SMs beside tensor-core work; be on fewer SMs, if the clock slows hp down by 2 % or more
 *   S  be takes its own channel groups off the GPU while hp is busy; the last section, since a fault could leave be stopped */
#define _GNU_SOURCE
#include "long_kernels/change.h"
#include "long_kernels/clocks.h"

static void print_device(void)
{
    int version, sms;
    char name[128];
    must(cuDriverGetVersion(&version), "version");
    must(cuDeviceGetName(name, sizeof name, device), "name");
    must(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "attribute");
    emit("\"device\": \"%s\", \"driver\": %d, \"sms\": %d, \"simulated\": %s", name, version, sms, simulated ? "true" : "false");
}

static const struct section sections[] = {
    {"device", print_device, start, 30}, {"T", time_slices_of_groups, NULL, 110}, {"P", preemptions, NULL, 30},
    {"E", early_changes, NULL, 80},      {"C", clocks, NULL, 80},                 {"S", stops, NULL, 30},
};

int main(int count, char **words)
{
    return run_sections(sections, sizeof sections / sizeof sections[0], count > 1 ? words[1] : "TPECS");
}
