/* Finds the managed memory that a launch names.
 *
 * A driver sees a kernel's parameters and not what the kernel does with them. Here a kernel touches all of each allocation to
 * which a parameter points, also from within a structure, and nothing else. On a GPU, kernels that follow pointers in memory touch more,
 * and others only a part. A kernel whose parameters name no memory at all would touch none; as programs of tests often pass no
 * addresses, it touches all managed memory of its context, which is the worst. So does one that names more allocations than an
 * operation has room for. */
#include "touches.h"

#include <string.h>

#include "allocation.h"

/* Adds a range; false: there is no room. */
static bool add(uint64_t *touches, uint64_t range)
{
    for (unsigned i = 0; i < SIM_TOUCHED; i++) {
        uint64_t held = *touches >> (16 * i) & 0xffff;
        if (held == range + 1) return true;
        if (held) continue;
        *touches |= (range + 1) << (16 * i);
        return true;
    }
    return false;
}

uint64_t sim_touches_of(const struct sim_kernel *kernel, void *const *parameters)
{
    uint64_t touches = 0;
    bool names = false;
    for (int i = 0; parameters && i < kernel->parameter_count; i++)
        for (unsigned at = 0; at + sizeof(uint64_t) <= kernel->parameter_size[i]; at += sizeof(uint64_t)) {
            struct sim_allocation found;
            uint64_t word;
            memcpy(&word, (const char *)parameters[i] + at, sizeof word);
            if (!sim_allocation_find(word, &found)) continue;
            names = true;
            if (found.memory == SIM_MANAGED && !add(&touches, found.range)) return SIM_TOUCHES_ALL;
        }
    return names && !touches ? SIM_TOUCHES_NONE : touches;
}

uint64_t sim_touches_at(uintptr_t address)
{
    struct sim_allocation found;
    return sim_allocation_find(address, &found) && found.memory == SIM_MANAGED ? found.range + 1 : SIM_TOUCHES_NONE;
}

uint64_t sim_touches_part(uintptr_t address, size_t bytes)
{
    uint64_t range = sim_touches_at(address);
    return range == SIM_TOUCHES_NONE ? range : range | (bytes + SIM_BLOCK - 1) / SIM_BLOCK << 16;
}
