/* A 64-bit hash for tables and identities, not for cryptography. `hook/identity.py` computes the same hash. */
#ifndef ORION_MIX_H
#define ORION_MIX_H

#include <stdint.h>

static inline uint64_t orion_mix(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    return value;
}

#endif
