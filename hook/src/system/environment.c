#include "system/environment.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "system/system.h"

#define READ_SPINS 100000u

enum { UNREAD = 0, READING = 1, READ = 2 };
static _Atomic uint32_t state;
static struct orion_environment values; /* readers come after the writer: it releases READ, and they acquire it */

/* The last byte stays 0. */
static void copy(char *to, size_t size, const char *name)
{
    const char *text = getenv(name);
    for (size_t i = 0; text != NULL && text[i] != '\0' && i + 1 < size; i++) to[i] = text[i];
}

/* The hook's constructor reads the variables. Constructors of other libraries may run before it and call the driver;
 * then the first of these calls reads them. A child that was forked in the middle of reading waits a bounded time. */
__attribute__((constructor)) static void read_once(void)
{
    uint32_t unread = UNREAD;
    if (atomic_compare_exchange_strong(&state, &unread, READING)) {
        copy(values.root, sizeof values.root, "ORION_ROOT");
        copy(values.hp_client, sizeof values.hp_client, "ORION_HP_CLIENT");
        copy(values.log_level, sizeof values.log_level, "ORION_LOG_LEVEL");
        copy(values.connections, sizeof values.connections, "ORION_CONNECTIONS");
        atomic_store_explicit(&state, READ, memory_order_release);
    }
    for (uint32_t i = 0; i < READ_SPINS && atomic_load_explicit(&state, memory_order_acquire) != READ; i++) orion_pause();
}

const struct orion_environment *orion_environment(void)
{
    if (atomic_load_explicit(&state, memory_order_acquire) != READ) read_once();
    return &values;
}
