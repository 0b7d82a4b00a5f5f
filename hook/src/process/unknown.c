#include "process/unknown.h"

#include <stdio.h>
#include <string.h>

enum { FREE = 0, WRITING = 1, COMPLETE = 2 };

bool orion_unknown_note(struct orion_unknown *unknown, const char *name)
{
    for (uint32_t i = 0; i < ORION_UNKNOWN_MOST; i++) {
        char *known = unknown->entry[i].name;
        size_t size = sizeof unknown->entry[i].name;
        uint32_t state = FREE;
        if (atomic_compare_exchange_strong(&unknown->entry[i].state, &state, WRITING)) {
            snprintf(known, size, "%s", name);
            atomic_store_explicit(&unknown->entry[i].state, COMPLETE, memory_order_release);
            atomic_fetch_add(&unknown->count, 1);
            return true;
        }
        if (state == COMPLETE && strncmp(known, name, size - 1) == 0) return false;
    }
    return false;
}

uint32_t orion_unknown_names(struct orion_unknown *unknown, char *text, size_t size)
{
    size_t used = 0;
    uint32_t names = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < ORION_UNKNOWN_MOST; i++) {
        if (atomic_load_explicit(&unknown->entry[i].state, memory_order_acquire) != COMPLETE) continue;
        const char *name = unknown->entry[i].name;
        if (used + strlen(name) + 3 > size) break;
        used += (size_t)snprintf(text + used, size - used, "%s%s", names++ > 0 ? ", " : "", name);
    }
    return names;
}
