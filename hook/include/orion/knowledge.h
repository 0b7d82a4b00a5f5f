/* Knowledge: what a slot's clients learnt about kernels. Clients and the agent exchange it, so that a restarted process
 * and other processes of the slot need not learn the same again.
 *
 *   client -> agent   LEARNT (join.h): from time to time, entries that are new or have changed
 *   agent -> client   KNOWLEDGE with a descriptor of a read-only, sealed table: before a be client's first NEIGHBOURS,
 *                     and again when administrators have changed the slot's profile
 *
 * Neither side trusts the other. The agent accepts only plausible entries. A client uses a received entry as an
 * estimate and measures the kernel's first launches. Identities are those of hook/src/learning/identity.h and
 * hook/identity.py, except local identities, which are made from handles.
 *
 * A table is a header and `count` entries, all little-endian. Rejected: a table in memory that a client writes and the
 * agent reads. The agent would have to seal such a table, adopt it after a restart and read it as hostile. A message
 * carries the same data. */
#ifndef ORION_KNOWLEDGE_H
#define ORION_KNOWLEDGE_H

#include <stdint.h>

#define ORION_KNOWLEDGE_MAGIC UINT64_C(0x3157454e4b4e524f) /* "ORNKNEW1" */
#define ORION_KNOWLEDGE_LAYOUT 1u
#define ORION_KNOWLEDGE_ENTRIES 8192u /* of a table, at most */
#define ORION_LEARNT_ENTRIES 250u     /* of a message */

/* Flags of an entry. */
enum orion_known {
    ORION_KNOWN_PROFILE = 1u, /* a profile's row: its identity is plain; its class overrides a learnt one */
};

struct orion_knowledge_entry {
    uint64_t identity;
    uint32_t expected_100ns; /* 0: unknown */
    uint16_t sms;            /* 0: unknown */
    uint8_t kernel_class;    /* enum orion_kernel_class */
    uint8_t flags;           /* enum orion_known */
};

struct orion_knowledge_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t count;
};

_Static_assert(sizeof(struct orion_knowledge_entry) == 16, "knowledge entry");
_Static_assert(sizeof(struct orion_knowledge_header) == 16, "knowledge header");

#endif
