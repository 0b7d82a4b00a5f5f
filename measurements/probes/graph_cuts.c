/* Measures what it takes to stop a graph in the middle: nodes in it that wait for a word (batch memory operations), or
 * several executables with waits of the stream between them. The cuts of graphs in hook/src/be depend on it. On a
 * machine with an NVIDIA GPU and the headers of CUDA 13:
 *
 *   gcc -O2 -Wall -Wextra -I/usr/local/cuda/include measurements/probes/graph_cuts.c -o /tmp/graph_cuts \
 *       -L/usr/local/cuda/lib64/stubs -lcuda -lm -lpthread -ldl && /tmp/graph_cuts > cuts.jsonl
 *   /tmp/graph_cuts AC            only these sections
 *
 * Output: one JSON object a line; what it does now, on stderr. All sections take about four minutes. A section is a
 * process with a limit in time: at the limit its words are opened, and soon after it is killed. So no section hangs, and
 * what it has measured until then is printed.
 *
 *   A  what open waits cost inside a graph         E  what a cut copy costs to make and to update, and its memory
 *   B  what a blocked graph costs another process  F  which graphs refuse to be copied and cut, and with which errors
 *   C  how fast a word opens and closes a graph    G  on which SMs nodes of a green context run
 *   D  several executables instead of one          H  ends of processes, and calls, while a graph is blocked */
#include "graph_cuts/cost.h"
#include "graph_cuts/ends.h"
#include "graph_cuts/green.h"
#include "graph_cuts/refused.h"
#include "graph_cuts/update.h"

static void print_device(void)
{
    int version, memory_operations, nor, flush, sms;
    char name[128];
    must(cuDriverGetVersion(&version), "version");
    must(cuDeviceGetName(name, sizeof name, device), "name");
    must(cuDeviceGetAttribute(&nor, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, device), "attribute");
    must(cuDeviceGetAttribute(&memory_operations, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device), "attribute");
    must(cuDeviceGetAttribute(&flush, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, device), "attribute");
    must(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "attribute");
    emit("\"device\": \"%s\", \"driver\": %d, \"header\": %d, \"sms\": %d, \"wait_nor\": %d, \"wait_64\": %d, \"flush\": %d, \"simulated\": %s",
         name, version, CUDA_VERSION, sms, nor, memory_operations, flush, simulated ? "true" : "false");
}

static const struct section sections[] = {
    {"device", print_device, start, 30},  {"F", refused, start, 30},
    {"B", time_slices, NULL, 75},         {"C", opening_and_closing, start, 45},
    {"H", ends, NULL, 75},                {"G", green_contexts, start, 20},
    {"E", copies_and_updates, start, 60}, {"A", cost_of_open_waits, start, 120},
    {"D", several_executables, start, 50},
};

int main(int count, char **words)
{
    return run_sections(sections, sizeof sections / sizeof sections[0], count > 1 ? words[1] : "ABCDEFGH");
}
