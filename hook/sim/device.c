/* Devices and their attributes. The values are an H200's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_identity.h"
#include "mps.h"
#include "sim.h"

void sim_gpu_uuid(int gpu, unsigned char uuid[16])
{
    uint64_t hash[2] = {UINT64_C(14695981039346656037), UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)gpu};
    for (int half = 0; half < 2; half++)
        for (const char *at = sim_machine->parameters.seed;; at++) {
            hash[half] = (hash[half] ^ (unsigned char)*at ^ ((uint64_t)gpu << 8)) * UINT64_C(1099511628211);
            hash[half] ^= hash[half] >> 29;
            if (!*at) break;
        }
    memcpy(uuid, hash, 16);
    uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40); /* the format of a random UUID */
    uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80);
}

void sim_gpu_uuid_text(int gpu, char text[SIM_UUID_TEXT])
{
    unsigned char u[16];
    sim_gpu_uuid(gpu, u);
    snprintf(text, SIM_UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_READY();
    SIM_REFUSE(!device, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_device_valid(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    SIM_READY();
    SIM_REFUSE(!count, CUDA_ERROR_INVALID_VALUE);
    *count = sim_device_count();
    return CUDA_SUCCESS;
}

#define DEVICE(device, pointer) \
    SIM_READY(); \
    SIM_REFUSE(!(pointer), CUDA_ERROR_INVALID_VALUE); \
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE)

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    DEVICE(device, name);
    SIM_REFUSE(length <= 0, CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "%s", SIM_GPU_NAME);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    DEVICE(device, uuid);
    sim_gpu_uuid(sim_device_gpu(device), (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    DEVICE(device, bytes);
    *bytes = sim_machine->parameters.memory;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *bus, int length, CUdevice device)
{
    DEVICE(device, bus);
    SIM_REFUSE(length < 13, CUDA_ERROR_INVALID_VALUE);
    snprintf(bus, (size_t)length, "0000:%02X:00.0", sim_device_gpu(device) + 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *device, const char *bus)
{
    unsigned domain, number;
    SIM_READY();
    SIM_REFUSE(!device || !bus, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(sscanf(bus, "%x:%x", &domain, &number) != 2 || domain, CUDA_ERROR_INVALID_DEVICE);
    for (CUdevice found = 0; found < sim_device_count(); found++)
        if (sim_device_gpu(found) + 1 == (int)number) {
            *device = found;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetLuid(char *luid, unsigned *mask, CUdevice device)
{
    (void)luid, (void)mask, (void)device;
    return CUDA_ERROR_NOT_SUPPORTED; /* for Windows only */
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    DEVICE(device, major && minor ? major : NULL);
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

static int device_number(CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
#define IS(name, value) \
    case CU_DEVICE_ATTRIBUTE_##name: return (int)(value);
#include "device_attributes.inc"
#undef IS
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return (int)sim_machine->parameters.sms;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return sim_device_gpu(device) + 1;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED: return sim_mps_client();
    default: return 0;
    }
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    DEVICE(device, value);
    SIM_REFUSE(attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    *value = device_number(attribute, device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
    DEVICE(device, properties);
    *properties = (CUdevprop){SIM_MAX_THREADS,
                              {1024, 1024, 64},
                              {2147483647, 65535, 65535},
                              SIM_SHARED_MEMORY,
                              65536,
                              32,
                              2147483647,
                              65536,
                              1980000,
                              512};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    DEVICE(device, can);
    SIM_REFUSE(!sim_device_valid(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    DEVICE(device, value);
    SIM_REFUSE(!sim_device_valid(peer) || device == peer, CUDA_ERROR_INVALID_DEVICE);
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice device)
{
    (void)type;
    DEVICE(device, value);
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels, CUdevice device)
{
    (void)format, (void)channels;
    DEVICE(device, width);
    *width = 1u << 28;
    return CUDA_SUCCESS;
}
