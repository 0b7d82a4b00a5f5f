/* Knowledge: what clients of a slot learnt about kernels, as it travels between them and the agent.
 *
 *   client -> agent   LEARNT (join.h), a few entries a message, now and then, for what is new or has changed
 *   agent -> client   KNOWLEDGE with a descriptor of a table, read-only and sealed: before a be client's first
 *                     NEIGHBOURS, and again when administrators changed the slot's profile
 *
 * So a process that is started again begins warm, and so do its siblings. Nobody has to believe it: the agent takes what
 * is plausible, and a client measures what it was told at the first launches. Identities are those of hook/src/learning/identity.h
 * and hook/identity.py, never ones that are made of handles.
 *
 * A table is a header and `count` entries; all little-endian. Refused: a table in memory that a client writes and the
 * agent reads (one more page that has to be sealed, adopted after a restart and read as hostile, for what a message
 * says as well). */
#ifndef ORION_KNOWLEDGE_H
#define ORION_KNOWLEDGE_H

#include <stdint.h>

#define ORION_KNOWLEDGE_MAGIC UINT64_C(0x3157454e4b4e524f) /* "ORNKNEW1" */
#define ORION_KNOWLEDGE_LAYOUT 1u
#define ORION_KNOWLEDGE_ENTRIES 8192u /* of a table, at most */
#define ORION_LEARNT_ENTRIES 250u     /* of a message */

enum orion_known { /* flags of an entry */
                   ORION_KNOWN_PROFILE =
                       1u, /* an administrators' row: the identity is the plain one, the class counts for more than what is learnt */
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
