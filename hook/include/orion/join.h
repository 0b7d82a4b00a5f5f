/* The messages between a client and the agent on a slot's socket. A process joins with them: it becomes a client of the
 * slot. The socket is SEQPACKET. Each message is one structure, little-endian, of at most ORION_MESSAGE_MAX bytes.
 *
 *   client                                  agent
 *   HELLO (a new client)             ->
 *                                    <-     WELCOME + fds policy, grant, busy, record     or REFUSED, then close
 *   (maps all four) READY            ->     the agent seals busy and record against new writers
 *                                    <-     NEIGHBOURS (be only): hp clients; the first comes at once, even if empty
 *                                    <-     GONE (be only): hp clients that have ended
 *                                    <-     KNOWLEDGE + fd of a table, if there is one: after READY and each change
 *   LEARNT                           ->     what the client learnt about kernels; only if WELCOME says that the agent
 *                                           accepts it (ORION_OFFERS_KNOWLEDGE)
 *   REPORT                           ->     a condition that users should see
 *                                    <-     JOB + fd of the job page (be only): once the client's job uses several GPUs
 *                                    <-     PARK (be only): the grant's word `park` has changed, or may have before READY
 *
 * pages.h explains the pages policy, grant, busy and record; knowledge.h explains KNOWLEDGE, its table and LEARNT. The
 * fds of NEIGHBOURS are the busy pages of the hp clients.
 *
 * After an agent's restart the client sends HELLO with ORION_HELLO_RETURNS and its fds busy and record, and the fd of its
 * job page if it has one. The agent accepts only inodes that it has recorded for the slot. The client keeps its index,
 * generation and rank. The agent answers WELCOME + fds policy and grant, and the client maps these over the old pages.
 *
 * A HELLO for the layouts 0 to 0 asks whether an agent answers: it is always REFUSED (hook/starting/await_agent.c).
 *
 * What needs no answer is a datagram to a second socket, notices.sock; the agent also reads it on a connection to the first
 * one, where hooks send it that find no second one. A be thread that waits for an hp client with a stale heartbeat sends
 * SUSPECT. The agent then checks whether the hp client's process is stopped. In the same way a be client sends TURN: it hands
 * back the rest of its slot's turn, or asks for a turn.
 *
 * A client whose credit of memory does not suffice opens a second connection and sends MEMORY; the agent answers
 * CREDIT after it has written the client's credit into the grant page, and closes that connection. A client that has the
 * credit, but finds no room on the GPU, sends ROOM in the same way, and before an allocation while others come back: YES means
 * that the room is free now, LATER that others are moving, NO that nobody will leave.
 *
 * A process that is no client sends VIEW on such a connection, to show what the grant says: a monitor that uses NVML but not
 * CUDA, or a program that only asks how much memory the GPU has. The agent answers SHOWN + fd of the grant page, closes the
 * connection, and keeps nothing of the process. An agent that does not know VIEW, or gets too many, closes the connection
 * without an answer.
 *
 * An hp client is managed from WELCOME on; a be client from its first NEIGHBOURS on. The client ignores messages of
 * unknown type. The agent closes the connection when it gets a message of unknown type. */
#ifndef ORION_JOIN_H
#define ORION_JOIN_H

#include <stdint.h>

#include "knowledge.h"

#define ORION_MESSAGE_MAGIC 0x4e494a4fu /* "OJIN" */
#define ORION_MESSAGE_MAX 4096u
#define ORION_FDS_MAX 250u /* of one message; the kernel's limit is 253 */

enum orion_message_type {
    ORION_HELLO = 1,
    ORION_READY = 2,
    ORION_REPORT = 3,
    ORION_SUSPECT = 4,
    ORION_LEARNT = 5,
    ORION_TURN = 6,
    ORION_MEMORY = 7,
    ORION_VIEW = 8,
    ORION_ROOM = 9,
    ORION_WELCOME = 16,
    ORION_REFUSED = 17,
    ORION_NEIGHBOURS = 18,
    ORION_GONE = 19,
    ORION_KNOWLEDGE = 20,
    ORION_JOB = 21,
    ORION_CREDIT = 22,
    ORION_SHOWN = 23,
    ORION_PARK = 24,
};

/* Flags of HELLO. IS_AWAY: a new client whose process has left the GPU's memory, or is about to. If it is be, the agent wishes
 * that it stays away, and then answers. */
enum { ORION_HELLO_RETURNS = 1u, ORION_HELLO_KEEPS_CREDIT = 2u, ORION_HELLO_IS_AWAY = 4u };
enum { ORION_OFFERS_KNOWLEDGE = 1u }; /* flags of WELCOME: the agent takes LEARNT and may send KNOWLEDGE */
enum orion_refusal {
    ORION_REFUSED_LAYOUT = 1,
    ORION_REFUSED_FULL = 2,
    ORION_REFUSED_RATE = 3,
    ORION_REFUSED_PAGES = 4,
    ORION_REFUSED_SLOT = 5
};
enum orion_turn_wish { ORION_TURN_HANDED_BACK = 1, ORION_TURN_WANTED = 2 };
/* YES: the credit suffices now. LATER: the agent cannot say yet, for example because clients return to it. */
enum orion_credit_answer { ORION_CREDIT_NO = 1, ORION_CREDIT_YES = 2, ORION_CREDIT_LATER = 3 };
enum orion_report { ORION_REPORT_UNKNOWN_FUNCTION = 1, ORION_REPORT_GIVEN_UP = 2, ORION_REPORT_PAGES = 3 };

struct orion_message {
    uint32_t magic;
    uint32_t type;
};

struct orion_hello {
    struct orion_message head;
    uint32_t layout_oldest, layout_newest; /* layout versions that the client understands, inclusive */
    uint32_t flags;
    uint32_t process_id;               /* in the client's PID namespace; for users only */
    uint32_t client_index, generation; /* those of a returning client, else 0 */
    char command[16];
    char hook_version[16];
};
struct orion_ready { struct orion_message head; };
struct orion_report_message {
    struct orion_message head;
    uint32_t code;
    uint32_t reserved;
    char text[112];
};
struct orion_suspect {
    struct orion_message head;
    uint32_t client_index, generation;
};
struct orion_turn {
    struct orion_message head;
    uint32_t wish; /* enum orion_turn_wish */
    uint32_t reserved;
};
struct orion_memory_wish {
    struct orion_message head;
    uint32_t client_index, generation;
    uint64_t bytes; /* MEMORY: that the client wants to hold in all; ROOM: that it wants to allocate */
};
struct orion_credit {
    struct orion_message head;
    uint32_t answer; /* enum orion_credit_answer */
    uint32_t reserved;
};
struct orion_park { struct orion_message head; };
struct orion_view { struct orion_message head; };
struct orion_shown { struct orion_message head; }; /* the message's fd is the grant page */
struct orion_welcome {
    struct orion_message head;
    uint32_t layout, role, client_index, generation, returned, offers;
};
struct orion_refused {
    struct orion_message head;
    uint32_t code, retry_ms;
    char text[112];
};
struct orion_client_index { uint32_t client_index, generation; };
struct orion_neighbours {
    struct orion_message head;
    uint32_t count, reserved;
    struct orion_client_index places[ORION_FDS_MAX];
}; /* fd number i of the message is the busy page of the client places[i] */
struct orion_gone {
    struct orion_message head;
    uint32_t count, reserved;
    struct orion_client_index places[ORION_FDS_MAX];
};
struct orion_learnt {
    struct orion_message head;
    uint32_t count, reserved;
    struct orion_knowledge_entry entries[ORION_LEARNT_ENTRIES];
};
struct orion_knowledge {
    struct orion_message head;
    uint32_t count, reserved;
}; /* the message's fd is the table */

struct orion_job {
    struct orion_message head;
    uint32_t rank; /* the client's index in the job page */
    uint32_t reserved;
}; /* the message's fd is the job page */

_Static_assert(sizeof(struct orion_hello) == 64, "hello");
_Static_assert(sizeof(struct orion_welcome) == 32, "welcome");
_Static_assert(sizeof(struct orion_refused) == 128, "refused");
_Static_assert(sizeof(struct orion_neighbours) == 2016, "neighbours");
_Static_assert(sizeof(struct orion_learnt) == 4016, "learnt");

#endif
