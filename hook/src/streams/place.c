#include "streams/place.h"

#include <stddef.h>

#include "generated/driver.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/stream_name.h"

/* Where the program has got the context, its handle is known. Else the hook must take a reference for a moment. If the program released its
 * last one meanwhile, the context would end only when the hook releases, and nobody would end what the hook keeps of it. */
CUcontext orion_primary_of(CUdevice device)
{
    CUcontext primary = orion_the_process != NULL ? orion_process_primary(orion_the_process, device) : NULL;
    unsigned flags;
    int active = 0; /* retaining an inactive primary context would create it */
    if (orion_driver.cuDevicePrimaryCtxGetState == NULL ||
        orion_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active)
        return NULL;
    if (primary != NULL) return primary;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (orion_driver.cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS) orion_driver.cuDevicePrimaryCtxRelease_v2(device);
    orion_capture_unrelax(&relaxed);
    return primary;
}

static bool is_green(CUstream handle)
{
    CUgreenCtx green = NULL;
    return orion_driver.cuStreamGetGreenCtx != NULL && orion_driver.cuStreamGetGreenCtx(handle, &green) == CUDA_SUCCESS &&
           green != NULL;
}

static bool find_device(CUcontext context, CUdevice *device)
{
    if (orion_driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return false;
    CUresult result = orion_driver.cuCtxGetDevice(device);
    orion_driver.cuCtxPopCurrent_v2(&context);
    return result == CUDA_SUCCESS;
}

bool orion_stream_place(CUstream handle, CUcontext named, struct orion_place *place)
{
    CUcontext current = NULL;
    *place = (struct orion_place){.context = named};
    if (orion_driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return false;
    bool is_current = named == current;
    if (is_current && orion_driver.cuCtxGetDevice(&place->device) != CUDA_SUCCESS) return false;
    /* Asks about a default stream only where its context may be a green one. */
    if (orion_stream_is_default(handle) && orion_primary_of(place->device) == named) return true;
    if (is_green(orion_stream_is_default(handle) ? CU_STREAM_LEGACY : handle)) {
        CUgreenCtx unused;
        place->green = named;
        if (is_current) place->context = orion_primary_of(place->device);
        else if (orion_driver.cuStreamGetCtx_v2 == NULL ||
                 orion_driver.cuStreamGetCtx_v2(handle, &place->context, &unused) != CUDA_SUCCESS)
            return false;
    }
    return place->context != NULL && (is_current || find_device(place->context, &place->device));
}
