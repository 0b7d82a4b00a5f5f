/* The part of NVML's interface that the hook changes and that the simulated GPU offers: our own declarations, after
 * NVIDIA's "NVML API Reference". NVML's handles are opaque, and its functions return a number, 0 for success. */
#ifndef ORION_NVML_H
#define ORION_NVML_H

#include <stdint.h>

#define ORION_NVML_LIBRARY "libnvidia-ml.so.1"
#define ORION_NVML_UUID_MAX 96u /* bytes of a UUID's text with its NUL, at most */

enum orion_nvml_result {
    ORION_NVML_SUCCESS = 0,
    ORION_NVML_UNINITIALIZED = 1,
    ORION_NVML_INVALID_ARGUMENT = 2,
    ORION_NVML_NOT_FOUND = 6,
    ORION_NVML_INSUFFICIENT_SIZE = 7,
    ORION_NVML_DRIVER_NOT_LOADED = 9,
    ORION_NVML_FUNCTION_NOT_FOUND = 13,
    ORION_NVML_GPU_IS_LOST = 15,
    ORION_NVML_ARGUMENT_VERSION_MISMATCH = 25,
};

typedef struct orion_nvml_device_st *orion_nvml_device;

struct orion_nvml_memory { unsigned long long total, free, used; }; /* `used` includes what the driver reserves */

struct orion_nvml_memory_v2 {
    unsigned version; /* ORION_NVML_MEMORY_V2 */
    unsigned long long total, reserved, free, used;
};
#define ORION_NVML_MEMORY_V2 ((unsigned)sizeof(struct orion_nvml_memory_v2) | 2u << 24)

struct orion_nvml_process { /* of the functions without a version */
    unsigned process_id;
    unsigned long long memory;
};
struct orion_nvml_process_v2 { /* of the functions _v2 and _v3 */
    unsigned process_id;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct orion_nvml_memory_v2) == 40 && sizeof(struct orion_nvml_process_v2) == 24, "NVML's structures");

#endif
