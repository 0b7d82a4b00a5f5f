#include "streams/capture_origins.h"

#include "generated/driver.h"
#include "streams/stream_records.h"
#include "system/lock.h"

/* A new thread may get the address of one whose end the hook has not seen. Its first capture then replaces what that one left open. */
static _Thread_local char this_thread;

/* What tells the origin from every other one. */
static struct orion_capture_origin key_of(struct orion_stream_name stream)
{
    struct orion_capture_origin key = {.handle = orion_stream_handle(stream), .primary = -1};
    if (key.handle != CU_STREAM_PER_THREAD) return key;
    key.thread = (uintptr_t)&this_thread;
    orion_driver.cuCtxGetCurrent(&key.context);
    return key;
}

/* The caller holds the lock. */
static struct orion_capture_origin *find(struct orion_capture_origins *all, const struct orion_capture_origin *key)
{
    for (uint32_t i = 0; i < ORION_CAPTURE_ORIGINS; i++) {
        struct orion_capture_origin *entry = &all->entry[i];
        if (entry->handle == key->handle && entry->thread == key->thread && (key->thread == 0 || entry->context == key->context))
            return entry;
    }
    return NULL;
}

static void drop(struct orion_process *process, struct orion_capture_origin *entry)
{
    *entry = (struct orion_capture_origin){0};
    atomic_fetch_sub(&process->captures, 1);
}

/* An entry with the same key is of a capture whose end the hook did not see, because a stream has one capture at a time. */
void orion_capture_origin_began(struct orion_process *process, struct orion_stream_name stream)
{
    struct orion_capture_origins *all = orion_capture_origins(process);
    struct orion_capture_origin origin = key_of(stream);
    const struct orion_capture_origin unused = {0};
    struct orion_place place;
    if (origin.thread != 0 && atomic_load(&process->thread_begins) != NULL) orion_stream_records_begin_thread(process);
    if (origin.context == NULL) orion_driver.cuStreamGetCtx(origin.handle, &origin.context);
    if (orion_stream_place(origin.handle, origin.context, &place) && orion_primary_of(place.device) == place.context)
        origin.primary = place.device;
    orion_lock(&all->lock);
    struct orion_capture_origin *entry = find(all, &origin);
    if (entry == NULL) {
        atomic_fetch_add(&process->captures, 1);
        entry = find(all, &unused);
    }
    if (entry != NULL) *entry = origin;
    else all->unlisted++;
    orion_unlock(&all->lock);
}

void orion_capture_origin_ended(struct orion_process *process, struct orion_stream_name stream)
{
    struct orion_capture_origins *all = orion_capture_origins(process);
    struct orion_capture_origin key = key_of(stream);
    orion_lock(&all->lock);
    struct orion_capture_origin *entry = find(all, &key);
    if (entry != NULL) {
        drop(process, entry);
    } else if (all->unlisted > 0) {
        all->unlisted--;
        atomic_fetch_sub(&process->captures, 1);
    }
    orion_unlock(&all->lock);
}

/* `ended` names one of them: a stream, a thread, a context, or a device with its primary context. */
static bool ends_with(const struct orion_capture_origin *entry, const struct orion_capture_origin *ended)
{
    return entry->handle == ended->handle || (ended->thread != 0 && entry->thread == ended->thread) ||
           (ended->context != NULL && entry->context == ended->context) ||
           (ended->primary >= 0 && entry->primary == ended->primary);
}

static void end_all(struct orion_process *process, struct orion_capture_origin ended)
{
    struct orion_capture_origins *all = orion_capture_origins(process);
    if (atomic_load(&process->captures) == 0) return;
    orion_lock(&all->lock);
    for (uint32_t i = 0; i < ORION_CAPTURE_ORIGINS; i++) {
        struct orion_capture_origin *entry = &all->entry[i];
        if (entry->handle != NULL && ends_with(entry, &ended)) drop(process, entry);
    }
    orion_unlock(&all->lock);
}

/* The driver destroys no default stream. */
void orion_capture_origin_destroyed(struct orion_process *process, CUstream stream)
{
    if (stream != CU_STREAM_PER_THREAD) end_all(process, (struct orion_capture_origin){.handle = stream, .primary = -1});
}

void orion_capture_origins_end_thread(struct orion_process *process)
{
    end_all(process, (struct orion_capture_origin){.thread = (uintptr_t)&this_thread, .primary = -1});
}

void orion_capture_origins_end_in(struct orion_process *process, CUcontext context)
{
    end_all(process, (struct orion_capture_origin){.context = context, .primary = -1});
}

void orion_capture_origins_end_in_primary(struct orion_process *process, CUdevice device)
{
    end_all(process, (struct orion_capture_origin){.primary = device});
}
