#include "agent/knowledge.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "learning/identity.h"
#include "system/system.h"

#define ENTRIES_AT_ONCE 256u
#define REPORT_FIRST_NS (250 * ORION_MILLISECOND)
#define REPORT_LATER_NS (2 * ORION_SECOND)

_Static_assert(ORION_DURATIONS <= UINT16_MAX + 1u, "a batch names entries by 16-bit indexes");

/* -- Receiving from the agent ---------------------------------------------------------------------------------------- */

static bool take_entry(struct orion_durations *durations, const struct orion_knowledge_entry *reported)
{
    bool is_row = (reported->flags & ORION_KNOWN_PROFILE) != 0;
    if (!(reported->identity & 1) || orion_identity_is_local(reported->identity) || reported->kernel_class > ORION_CLASS_MEMORY)
        return false;
    struct orion_duration *entry = orion_duration_claim_for_estimate(durations, reported->identity);
    if (entry == NULL) return false;
    uint32_t facts = atomic_load_explicit(&entry->facts, memory_order_relaxed);
    bool given = (orion_facts_flags(facts) & ORION_FACTS_CLASS_GIVEN) != 0;
    if (atomic_load_explicit(&entry->samples, memory_order_relaxed) == 0 && reported->expected_100ns != 0) {
        atomic_store_explicit(&entry->expected_100ns, reported->expected_100ns, memory_order_relaxed);
        orion_facts_set_flags(entry, ORION_FACTS_ESTIMATE);
    }
    if (reported->sms != 0 && orion_facts_sms(facts) == 0) orion_facts_set_sms(entry, reported->sms);
    if (reported->kernel_class != ORION_CLASS_UNKNOWN && (is_row || (!given && orion_facts_class(facts) == ORION_CLASS_UNKNOWN)))
        orion_facts_set_class(entry, reported->kernel_class);
    if (is_row)
        orion_facts_set_flags(entry,
                              ORION_FACTS_PROFILE | (reported->kernel_class != ORION_CLASS_UNKNOWN ? ORION_FACTS_CLASS_GIVEN : 0));
    /* The agent already knows this value, so it is not reported back. */
    atomic_store_explicit(&entry->reported_100ns, reported->expected_100ns, memory_order_relaxed);
    atomic_store_explicit(&entry->reported_facts, atomic_load_explicit(&entry->facts, memory_order_relaxed) & 0xffffff,
                          memory_order_relaxed);
    return true;
}

/* A new table replaces all profile rows. This removes the rows of an earlier profile and the classes that they set. */
static bool withdraw_rows(struct orion_durations *durations)
{
    bool any = false;
    for (uint32_t i = 0; i < ORION_DURATIONS; i++) {
        struct orion_duration *entry = &durations->entry[i];
        uint32_t flags = orion_facts_flags(atomic_load_explicit(&entry->facts, memory_order_relaxed));
        if (!(flags & (ORION_FACTS_PROFILE | ORION_FACTS_CLASS_GIVEN))) continue;
        if (flags & ORION_FACTS_CLASS_GIVEN) orion_facts_set_class(entry, ORION_CLASS_UNKNOWN);
        orion_facts_clear_flags(entry, ORION_FACTS_PROFILE | ORION_FACTS_CLASS_GIVEN);
        any = true;
    }
    return any;
}

/* orion_kernel_note searches a kernel's profile row once. orion_kernel_note must run again for kernels that it noted
 * before the rows arrived. */
static void note_all_again(struct orion_durations *durations)
{
    for (uint32_t i = 0; i < ORION_DURATIONS; i++)
        if (atomic_load_explicit(&durations->entry[i].identity, memory_order_acquire) != 0)
            orion_facts_clear_flags(&durations->entry[i], ORION_FACTS_NOTED);
}

uint32_t orion_knowledge_receive(struct orion_durations *durations, int table)
{
    struct orion_knowledge_header header;
    struct orion_knowledge_entry part[ENTRIES_AT_ONCE];
    uint32_t taken = 0;
    if (pread(table, &header, sizeof header, 0) != (ssize_t)sizeof header) return 0;
    if (header.magic != ORION_KNOWLEDGE_MAGIC || header.layout != ORION_KNOWLEDGE_LAYOUT || header.count > ORION_KNOWLEDGE_ENTRIES)
        return 0;
    bool rows = withdraw_rows(durations);
    for (uint32_t first = 0; first < header.count; first += ENTRIES_AT_ONCE) {
        uint32_t count = header.count - first < ENTRIES_AT_ONCE ? header.count - first : ENTRIES_AT_ONCE;
        ssize_t bytes = (ssize_t)(count * sizeof *part);
        if (pread(table, part, (size_t)bytes, (off_t)(sizeof header + first * sizeof *part)) != bytes) break;
        for (uint32_t i = 0; i < count; i++) {
            bool used = take_entry(durations, &part[i]);
            taken += used;
            rows |= used && (part[i].flags & ORION_KNOWN_PROFILE) != 0;
        }
    }
    if (rows) note_all_again(durations);
    return taken;
}

/* -- Reporting to the agent ------------------------------------------------------------------------------------------ */

/* The facts of an entry that are reported: its SMs, and its class unless an administrator's profile set the class. */
static uint32_t facts_to_report(const struct orion_duration *entry)
{
    uint32_t facts = atomic_load_explicit(&entry->facts, memory_order_relaxed);
    return orion_facts_flags(facts) & ORION_FACTS_CLASS_GIVEN ? orion_facts_sms(facts) : facts & 0xffffff;
}

static bool is_unreported(const struct orion_duration *entry, uint64_t identity)
{
    if (identity == 0 || orion_identity_is_local(identity)) return false;
    if (atomic_load_explicit(&entry->samples, memory_order_relaxed) == 0) return false;
    uint64_t expected = atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed);
    uint64_t reported = atomic_load_explicit(&entry->reported_100ns, memory_order_relaxed);
    if ((expected > reported ? expected - reported : reported - expected) * 8 > reported) return true;
    return facts_to_report(entry) != atomic_load_explicit(&entry->reported_facts, memory_order_relaxed);
}

uint32_t orion_knowledge_collect(struct orion_durations *durations, uint32_t *cursor, struct orion_knowledge_batch *batch)
{
    uint32_t count = 0;
    for (uint32_t looked = 0; looked < ORION_DURATIONS && count < ORION_LEARNT_ENTRIES; looked++) {
        uint32_t index = (*cursor)++ & (ORION_DURATIONS - 1);
        struct orion_duration *entry = &durations->entry[index];
        uint64_t identity = atomic_load_explicit(&entry->identity, memory_order_acquire);
        if (!is_unreported(entry, identity)) continue;
        uint32_t facts = facts_to_report(entry);
        batch->entries[count] = (struct orion_knowledge_entry){
            .identity = identity,
            .expected_100ns = atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed),
            .sms = (uint16_t)orion_facts_sms(facts),
            .kernel_class = (uint8_t)orion_facts_class(facts),
        };
        batch->indexes[count++] = (uint16_t)index;
    }
    return count;
}

void orion_knowledge_reported(struct orion_durations *durations, const struct orion_knowledge_batch *batch, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct orion_duration *entry = &durations->entry[batch->indexes[i]];
        if (atomic_load_explicit(&entry->identity, memory_order_acquire) != batch->entries[i].identity) continue;
        atomic_store_explicit(&entry->reported_100ns, batch->entries[i].expected_100ns, memory_order_relaxed);
        atomic_store_explicit(&entry->reported_facts, batch->entries[i].sms | (uint32_t)batch->entries[i].kernel_class << 16,
                              memory_order_relaxed);
    }
}

/* A new agent knows nothing, so every entry must be reported again. */
static void forget_reported(struct orion_durations *durations)
{
    for (uint32_t i = 0; i < ORION_DURATIONS; i++) {
        if (atomic_load_explicit(&durations->entry[i].identity, memory_order_acquire) == 0) continue;
        atomic_store_explicit(&durations->entry[i].reported_100ns, 0, memory_order_relaxed);
        atomic_store_explicit(&durations->entry[i].reported_facts, 0, memory_order_relaxed);
    }
}

void orion_knowledge_reports_begin(struct orion_knowledge_reports *reports, struct orion_durations *durations,
                                   const struct orion_welcome *welcome, uint64_t now)
{
    bool accepts = (welcome->offers & ORION_OFFERS_KNOWLEDGE) != 0;
    *reports = (struct orion_knowledge_reports){.at_ns = accepts ? now + REPORT_FIRST_NS : UINT64_MAX, .pause_ns = REPORT_FIRST_NS};
    if (!accepts || !welcome->returned) return;
    forget_reported(durations);
    atomic_fetch_add_explicit(&durations->changes, 1, memory_order_relaxed);
}

/* Sends at most one message a call: the agent reads at most ten messages a second from a client. */
void orion_knowledge_reports_poll(struct orion_knowledge_reports *reports, struct orion_durations *durations, int socket,
                                  uint64_t now)
{
    if (now < reports->at_ns) return;
    struct orion_knowledge_batch batch;
    struct orion_learnt learnt = {.head = {ORION_MESSAGE_MAGIC, ORION_LEARNT}};
    uint32_t changes = atomic_load_explicit(&durations->changes, memory_order_relaxed);
    if (changes != reports->changes) {
        learnt.count = orion_knowledge_collect(durations, &reports->cursor, &batch);
        memcpy(learnt.entries, batch.entries, learnt.count * sizeof batch.entries[0]);
    }
    bool sent = learnt.count == 0 || send(socket, &learnt, sizeof learnt, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof learnt;
    if (sent) orion_knowledge_reported(durations, &batch, learnt.count);
    bool all = sent && learnt.count < ORION_LEARNT_ENTRIES;
    if (all) reports->changes = changes;
    reports->at_ns = now + reports->pause_ns;
    if (all && reports->pause_ns < REPORT_LATER_NS) reports->pause_ns *= 2;
}
