/* NVML of the simulated GPU: libnvidia-ml.so.1. It has what monitors need to list GPUs, their memory and their processes.
 * Every other function is missing, as a function is missing from an old driver.
 *
 * The library contains the simulated driver's code, but exports only the functions of NVML. So a process that uses NVML
 * only does not load libcuda.so.1, as with the real one. */
#include "orion/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device_identity.h"
#include "orion_sim.h"
#include "sim.h"

#define PUBLIC __attribute__((visibility("default"))) int
#define NOT_IN_MIG UINT32_MAX
#define DRIVER_VERSION "580.00.00" /* of CUDA 13.0 */

/* Programs and the agent tell this library from the real one by this symbol. */
__attribute__((visibility("default"))) const char orion_sim_nvml[] = "orion-sim 1";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialised;
static int gpus[SIM_GPUS], count;

/* A handle is the address of the GPU's entry in `gpus`. */
static int gpu_of(orion_nvml_device device)
{
    for (int at = 0; at < count; at++)
        if (device == (void *)&gpus[at]) return gpus[at];
    return -1;
}

#define READY(valid) \
    do { \
        if (!initialised) return ORION_NVML_UNINITIALIZED; \
        if (!(valid)) return ORION_NVML_INVALID_ARGUMENT; \
    } while (0)
#define DEVICE(gpu, device, valid) \
    READY(valid); \
    int gpu = gpu_of(device); \
    if (gpu < 0) return ORION_NVML_INVALID_ARGUMENT; \
    if (orion_sim_gpu_health(gpu, NULL, NULL) == 1) return ORION_NVML_GPU_IS_LOST

static int written(char *text, unsigned length, const char *value)
{
    if (strlen(value) >= length) return ORION_NVML_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return ORION_NVML_SUCCESS;
}

PUBLIC nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&mutex);
    bool there = sim_open();
    if (there && initialised++ == 0) count = sim_given_gpus(gpus);
    pthread_mutex_unlock(&mutex);
    return there ? ORION_NVML_SUCCESS : ORION_NVML_DRIVER_NOT_LOADED;
}
PUBLIC nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
PUBLIC nvmlInit(void) { return nvmlInitWithFlags(0); }

PUBLIC nvmlShutdown(void)
{
    READY(true);
    pthread_mutex_lock(&mutex);
    initialised--;
    pthread_mutex_unlock(&mutex);
    return ORION_NVML_SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int result)
{
    switch (result) {
    case ORION_NVML_SUCCESS: return "The operation was successful";
    case ORION_NVML_UNINITIALIZED: return "Uninitialized";
    case ORION_NVML_INVALID_ARGUMENT: return "Invalid Argument";
    case ORION_NVML_NOT_FOUND: return "Not Found";
    case ORION_NVML_INSUFFICIENT_SIZE: return "Insufficient Size";
    case ORION_NVML_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case ORION_NVML_FUNCTION_NOT_FOUND: return "Function Not Found";
    case ORION_NVML_GPU_IS_LOST: return "GPU is lost";
    case ORION_NVML_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

PUBLIC nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    READY(version);
    return written(version, length, DRIVER_VERSION);
}

PUBLIC nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    READY(version);
    *version = SIM_DRIVER_VERSION;
    return ORION_NVML_SUCCESS;
}
PUBLIC nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* -- Handles and identities ------------------------------------------------------------------------------------------ */

static void bus_of(int gpu, char text[32]) { snprintf(text, 32, "%08X:%02X:00.0", 0u, (unsigned)gpu + 1); }

PUBLIC nvmlDeviceGetCount_v2(unsigned *devices)
{
    READY(devices);
    *devices = (unsigned)count;
    return ORION_NVML_SUCCESS;
}

PUBLIC nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    READY(device && index < (unsigned)count);
    *device = &gpus[index];
    return ORION_NVML_SUCCESS;
}

static int handle_by(const char *text, void (*identity)(int gpu, char text[SIM_UUID_TEXT]), void **device)
{
    char found[SIM_UUID_TEXT];
    READY(text && device);
    for (int at = 0; at < count; at++) {
        identity(gpus[at], found);
        *device = &gpus[at];
        if (!strcmp(text, found)) return ORION_NVML_SUCCESS;
    }
    return ORION_NVML_NOT_FOUND;
}
PUBLIC nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return handle_by(uuid, sim_gpu_uuid_text, device); }
PUBLIC nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { return handle_by(bus, bus_of, device); }

PUBLIC nvmlDeviceGetIndex(orion_nvml_device device, unsigned *index)
{
    READY(index && gpu_of(device) >= 0);
    *index = (unsigned)((int *)(void *)device - gpus);
    return ORION_NVML_SUCCESS;
}

PUBLIC nvmlDeviceGetName(orion_nvml_device device, char *name, unsigned length)
{
    DEVICE(gpu, device, name);
    return written(name, length, SIM_GPU_NAME);
}

PUBLIC nvmlDeviceGetUUID(orion_nvml_device device, char *uuid, unsigned length)
{
    char text[SIM_UUID_TEXT];
    DEVICE(gpu, device, uuid);
    sim_gpu_uuid_text(gpu, text);
    return written(uuid, length, text);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};
PUBLIC nvmlDeviceGetPciInfo_v3(orion_nvml_device device, struct pci *pci)
{
    DEVICE(gpu, device, pci);
    *pci = (struct pci){.bus = (unsigned)gpu + 1, .id = 0x10de};
    bus_of(gpu, pci->text);
    memcpy(pci->legacy, pci->text + 4, sizeof "0000:00:00.0"); /* without the first four digits of the domain */
    return ORION_NVML_SUCCESS;
}

/* -- Memory and processes -------------------------------------------------------------------------------------------- */

PUBLIC nvmlDeviceGetMemoryInfo(orion_nvml_device device, struct orion_nvml_memory *memory)
{
    uint64_t total, used;
    DEVICE(gpu, device, memory);
    orion_sim_gpu_memory(gpu, &total, &used);
    *memory = (struct orion_nvml_memory){.total = total, .free = total - used, .used = used};
    return ORION_NVML_SUCCESS;
}

PUBLIC nvmlDeviceGetMemoryInfo_v2(orion_nvml_device device, struct orion_nvml_memory_v2 *memory)
{
    struct orion_nvml_memory plain;
    READY(memory);
    if (memory->version != ORION_NVML_MEMORY_V2) return ORION_NVML_ARGUMENT_VERSION_MISMATCH;
    int result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != ORION_NVML_SUCCESS) return result;
    memory->total = plain.total, memory->free = plain.free, memory->used = plain.used, memory->reserved = 0;
    return ORION_NVML_SUCCESS;
}

/* Lists a process that is not visible in the caller's pid namespace as process 0. */
static int list(orion_nvml_device device, unsigned *processes, void *infos, size_t size)
{
    static _Thread_local uint32_t ids[SIM_CLIENTS];
    static _Thread_local uint64_t memory[SIM_CLIENTS];
    DEVICE(gpu, device, processes);
    unsigned room = *processes, found = (unsigned)orion_sim_gpu_processes(gpu, ids, memory, SIM_CLIENTS);
    *processes = found;
    if (found == 0) return ORION_NVML_SUCCESS;
    if (!infos || room < found) return ORION_NVML_INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < found; at++) {
        struct orion_nvml_process_v2 info = {ids[at], memory[at], NOT_IN_MIG, NOT_IN_MIG};
        memcpy((char *)infos + at * size, &info, size);
    }
    return ORION_NVML_SUCCESS;
}

PUBLIC nvmlDeviceGetComputeRunningProcesses(orion_nvml_device device, unsigned *processes, void *infos)
{
    return list(device, processes, infos, sizeof(struct orion_nvml_process));
}
PUBLIC nvmlDeviceGetComputeRunningProcesses_v2(orion_nvml_device device, unsigned *processes, void *infos)
{
    return list(device, processes, infos, sizeof(struct orion_nvml_process_v2));
}
PUBLIC nvmlDeviceGetComputeRunningProcesses_v3(orion_nvml_device device, unsigned *processes, void *infos)
{
    return list(device, processes, infos, sizeof(struct orion_nvml_process_v2));
}
PUBLIC nvmlDeviceGetGraphicsRunningProcesses_v3(orion_nvml_device device, unsigned *processes, void *infos)
{
    (void)infos;
    DEVICE(gpu, device, processes);
    *processes = 0;
    return ORION_NVML_SUCCESS;
}
