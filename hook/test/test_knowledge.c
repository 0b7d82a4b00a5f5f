/* Knowledge tables: the hook takes a table as estimates, which never replace measurements. It rejects malformed tables.
 * It reports new knowledge once, and again to another agent. */
#include "check.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/knowledge.h"
#include "learning/identity.h"
#include "system/system.h"

static struct orion_durations durations;
static const struct orion_durations empty;

static uint64_t kernel(uint64_t i) { return orion_identity_shape(orion_mix(i), 0, 1, 1, 1, 32, 1, 1, 0); }

static uint32_t take(const struct orion_knowledge_header *header, const struct orion_knowledge_entry *entries, uint32_t count)
{
    int table = memfd_create("table", MFD_CLOEXEC);
    CHECK(write(table, header, sizeof *header) == (ssize_t)sizeof *header);
    CHECK(write(table, entries, count * sizeof *entries) == (ssize_t)(count * sizeof *entries));
    uint32_t taken = orion_knowledge_receive(&durations, table);
    close(table);
    return taken;
}

static uint64_t expected_of(uint64_t identity)
{
    bool sample;
    return orion_duration_expect(&durations, identity, &sample);
}

static void a_table_is_estimate(void)
{
    struct orion_knowledge_header header = {ORION_KNOWLEDGE_MAGIC, ORION_KNOWLEDGE_LAYOUT, 5};
    struct orion_knowledge_entry entries[] = {
        {kernel(1), 5000, 12, ORION_CLASS_MEMORY, 0},
        {kernel(2), 7000, 0, ORION_CLASS_UNKNOWN, 0},
        {kernel(3), 9000, 0, ORION_CLASS_COMPUTE, ORION_KNOWN_PROFILE},
        {kernel(4) | ORION_IDENTITY_LOCAL, 9000, 0, 0, 0}, /* made from another process's handles */
        {kernel(5), 9000, 0, 77, 0},
    };
    struct orion_kernel_facts facts;
    orion_duration_learn(&durations, kernel(2), 100000, ORION_SAMPLE_CLEAN);
    CHECK(take(&header, entries, 5) == 3);
    CHECK(expected_of(kernel(1)) == 500000 && expected_of(kernel(2)) == 100100 && expected_of(kernel(5)) == 0);
    CHECK(!orion_kernel_facts(&durations, kernel(1), &facts) && facts.sms == 12 && facts.kernel_class == ORION_CLASS_MEMORY);
    orion_kernel_facts(&durations, kernel(3), &facts);
    CHECK(facts.kernel_class == ORION_CLASS_COMPUTE && facts.samples == 0);
    orion_duration_learn(&durations, kernel(1), 400000, ORION_SAMPLE_CLEAN);
    CHECK(expected_of(kernel(1)) == 400100); /* the measurement replaces the estimate */
}

static uint32_t class_of(uint64_t identity)
{
    struct orion_kernel_facts facts;
    orion_kernel_facts(&durations, identity, &facts);
    return facts.kernel_class;
}

static void a_profile_takes_the_client_index_of_the_last(void)
{
    struct orion_knowledge_header header = {ORION_KNOWLEDGE_MAGIC, ORION_KNOWLEDGE_LAYOUT, 2};
    struct orion_knowledge_entry first[] = {
        {kernel(50), 9000, 132, ORION_CLASS_COMPUTE, ORION_KNOWN_PROFILE},
        {kernel(51), 9000, 132, ORION_CLASS_MEMORY, ORION_KNOWN_PROFILE},
    };
    struct orion_knowledge_entry second[] = {{kernel(50), 9000, 132, ORION_CLASS_MEMORY, ORION_KNOWN_PROFILE}};
    CHECK(take(&header, first, 2) == 2);
    CHECK(class_of(kernel(50)) == ORION_CLASS_COMPUTE && class_of(kernel(51)) == ORION_CLASS_MEMORY);
    header.count = 1;
    CHECK(take(&header, second, 1) == 1);
    CHECK(class_of(kernel(50)) == ORION_CLASS_MEMORY && class_of(kernel(51)) == ORION_CLASS_UNKNOWN);
    header.count = 0;
    CHECK(take(&header, second, 0) == 0);
    CHECK(class_of(kernel(50)) == ORION_CLASS_UNKNOWN && class_of(kernel(51)) == ORION_CLASS_UNKNOWN);
}

static void malformed_tables_are_not_taken(void)
{
    struct orion_knowledge_entry entries[] = {{kernel(100), 5000, 12, 0, 0}, {kernel(101), 5000, 12, 0, 0}};
    struct orion_knowledge_header right = {ORION_KNOWLEDGE_MAGIC, ORION_KNOWLEDGE_LAYOUT, 2}, wrong = right;
    wrong.magic++;
    CHECK(take(&wrong, entries, 2) == 0);
    wrong = right, wrong.layout++;
    CHECK(take(&wrong, entries, 2) == 0);
    wrong = right, wrong.count = UINT32_MAX;
    CHECK(take(&wrong, entries, 2) == 0);
    wrong = right, wrong.count = 3; /* the table is shorter than its header says */
    CHECK(take(&wrong, entries, 2) == 0);
    CHECK(orion_knowledge_receive(&durations, -1) == 0);
    CHECK(take(&right, entries, 2) == 2);
}

static void what_is_new_is_reported_once(void)
{
    struct orion_knowledge_batch batch;
    uint32_t cursor = 0, reported = 0, count;
    durations = empty;
    for (uint64_t i = 0; i < 600; i++) orion_duration_learn(&durations, kernel(i), 1000 * (i + 1), ORION_SAMPLE_CLEAN);
    orion_duration_learn(&durations, kernel(0) | ORION_IDENTITY_LOCAL, 1000, ORION_SAMPLE_CLEAN);
    do {
        count = orion_knowledge_collect(&durations, &cursor, &batch);
        orion_knowledge_reported(&durations, &batch, count);
        reported += count;
    } while (count == ORION_LEARNT_ENTRIES);
    CHECK(reported == 600);
    CHECK(orion_knowledge_collect(&durations, &cursor, &batch) == 0);
    for (int i = 0; i < 10; i++) orion_duration_learn(&durations, kernel(300), 301000, ORION_SAMPLE_CLEAN); /* the same as before */
    CHECK(orion_knowledge_collect(&durations, &cursor, &batch) == 0);
    for (int i = 0; i < 10; i++) orion_duration_learn(&durations, kernel(300), 100000, ORION_SAMPLE_CLEAN);
    orion_facts_set_sms(orion_duration_find(&durations, kernel(301)), 5);
    CHECK(orion_knowledge_collect(&durations, &cursor, &batch) == 2);
    /* A measurement equal to what the agent sent is not reported. */
    struct orion_knowledge_header header = {ORION_KNOWLEDGE_MAGIC, ORION_KNOWLEDGE_LAYOUT, 1};
    struct orion_knowledge_entry entry = {kernel(700), 5000, 3, 0, 0};
    orion_knowledge_reported(&durations, &batch, 2);
    CHECK(take(&header, &entry, 1) == 1);
    orion_duration_learn(&durations, kernel(700), 500000, ORION_SAMPLE_CLEAN);
    CHECK(orion_knowledge_collect(&durations, &cursor, &batch) == 0);
}

static uint32_t received(int socket)
{
    struct orion_learnt learnt;
    ssize_t length = recv(socket, &learnt, sizeof learnt, MSG_DONTWAIT);
    if (length < 0) return 0;
    CHECK(length == (ssize_t)sizeof learnt && learnt.head.type == ORION_LEARNT && learnt.head.magic == ORION_MESSAGE_MAGIC);
    return learnt.count;
}

static void telling_is_paced_and_starts_again_with_another_agent(void)
{
    int sockets[2];
    struct orion_knowledge_reports reports;
    struct orion_welcome old = {.offers = 0}, welcome = {.offers = ORION_OFFERS_KNOWLEDGE},
                         again = {.offers = ORION_OFFERS_KNOWLEDGE, .returned = 1};
    uint64_t now = ORION_SECOND;
    durations = empty;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    for (uint64_t i = 0; i < 300; i++) orion_duration_learn(&durations, kernel(i), 1000, ORION_SAMPLE_CLEAN);
    orion_knowledge_reports_begin(&reports, &durations, &old, now);
    CHECK(reports.at_ns == UINT64_MAX);
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], now + 100 * ORION_SECOND);
    CHECK(received(sockets[1]) == 0);
    orion_knowledge_reports_begin(&reports, &durations, &welcome, now);
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], now);
    CHECK(received(sockets[1]) == 0); /* not yet */
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], reports.at_ns);
    CHECK(received(sockets[1]) == ORION_LEARNT_ENTRIES && received(sockets[1]) == 0);
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], reports.at_ns);
    CHECK(received(sockets[1]) == 50);
    for (int i = 0; i < 10; i++) {
        uint64_t at = reports.at_ns;
        orion_knowledge_reports_poll(&reports, &durations, sockets[0], at);
        CHECK(reports.at_ns > at && received(sockets[1]) == 0);
    }
    orion_knowledge_reports_begin(&reports, &durations, &again, now);
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], reports.at_ns);
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], reports.at_ns);
    CHECK(received(sockets[1]) + received(sockets[1]) == 300);
    /* An agent that does not read: nothing counts as reported. */
    orion_duration_learn(&durations, kernel(1000), 5000, ORION_SAMPLE_CLEAN);
    close(sockets[1]);
    orion_knowledge_reports_poll(&reports, &durations, sockets[0], reports.at_ns);
    struct orion_knowledge_batch batch;
    CHECK(orion_knowledge_collect(&durations, &reports.cursor, &batch) == 1);
    close(sockets[0]);
}

int main(void)
{
    a_table_is_estimate();
    a_profile_takes_the_client_index_of_the_last();
    malformed_tables_are_not_taken();
    what_is_new_is_reported_once();
    telling_is_paced_and_starts_again_with_another_agent();
    puts("knowledge: ok");
    return 0;
}
