/* A fake libcupti.so.13 with the functions that the profiler uses. It replays the kernels that the program names (see
 * client_profiled.c) through the registered callbacks. It follows CUPTI's rules: a buffer takes as many records as the
 * profiler configured, and the profiler gets the buffer when it is full or flushed. An unforced flush keeps a buffer
 * with unfinished records. Records of other kinds and sizes lie between the kernels' records.
 *
 *   FAKE_CUPTI_SUBSCRIBE      the result of cuptiSubscribe (0)
 *   FAKE_CUPTI_RECORD_BYTES   the size of a kernel's record: 144 (CUDA 9) to 248 (CUDA 13.5, the default) */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../profiler/cupti.h"

enum { INVALID_PARAMETER = 1, END_OF_BUFFER = 12, KIND_MEMCPY = 1, MEMCPY_BYTES = 96 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cupti_requested *request;
static cupti_completed *complete;
static bool enabled, unfinished;
static uint8_t *buffer;
static size_t size, used, records, most, dropped;

static size_t number(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

uint32_t cuptiSubscribe(void **subscriber, cupti_called *called, void *data)
{
    (void)called, (void)data;
    *subscriber = &mutex;
    return (uint32_t)number("FAKE_CUPTI_SUBSCRIBE", 0);
}

uint32_t cuptiActivityRegisterCallbacks(cupti_requested *requested, cupti_completed *completed)
{
    request = requested, complete = completed;
    return requested == NULL || completed == NULL ? INVALID_PARAMETER : CUPTI_OK;
}

uint32_t cuptiActivityEnable(uint32_t kind)
{
    enabled = kind == CUPTI_KIND_CONCURRENT_KERNEL;
    return enabled && request != NULL ? CUPTI_OK : INVALID_PARAMETER;
}

uint32_t cuptiGetResultString(uint32_t result, const char **text)
{
    *text = result == CUPTI_ANOTHER_SUBSCRIBER ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_FAKE";
    return CUPTI_OK;
}

uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    *count = dropped;
    dropped = 0;
    return CUPTI_OK;
}

uint32_t cuptiActivityGetNextRecord(uint8_t *from, size_t valid, struct cupti_record **record)
{
    size_t kernel_bytes = number("FAKE_CUPTI_RECORD_BYTES", 248), step = 0;
    if (*record != NULL) step = (*record)->kind == KIND_MEMCPY ? MEMCPY_BYTES : kernel_bytes;
    uint8_t *next = *record == NULL ? from : (uint8_t *)*record + step;
    if (next >= from + valid) return END_OF_BUFFER;
    *record = (struct cupti_record *)next;
    return CUPTI_OK;
}

/* The profiler's callback runs without the mutex, as CUPTI's callbacks run on a thread of CUPTI. */
static void hand_over(void)
{
    uint8_t *full = buffer;
    size_t full_size = size, valid = used;
    buffer = NULL, used = records = 0, unfinished = false;
    if (full == NULL) return;
    pthread_mutex_unlock(&mutex);
    complete(NULL, 0, full, full_size, valid);
    pthread_mutex_lock(&mutex);
}

static void *record_of(uint32_t kind, size_t bytes)
{
    if (buffer != NULL && (used + bytes > size || (most != 0 && records == most))) hand_over();
    if (buffer == NULL) request(&buffer, &size, &most);
    if (buffer == NULL || bytes > size) return dropped++, NULL;
    struct cupti_record *record = memset(buffer + used, 0, bytes);
    record->kind = kind;
    used += bytes, records++;
    return record;
}

uint32_t cuptiActivityFlushAll(uint32_t flag)
{
    pthread_mutex_lock(&mutex);
    if (!unfinished || flag == CUPTI_FLUSH_FORCED) hand_over();
    pthread_mutex_unlock(&mutex);
    return CUPTI_OK;
}

/* Record one kernel that ran, as CUPTI would. An end of 0: the kernel still runs. */
void fake_cupti_kernel(const struct cupti_kernel *kernel)
{
    size_t bytes = number("FAKE_CUPTI_RECORD_BYTES", 248);
    if (!enabled) return;
    pthread_mutex_lock(&mutex);
    void *copy = record_of(KIND_MEMCPY, MEMCPY_BYTES), *record = record_of(CUPTI_KIND_CONCURRENT_KERNEL, bytes);
    if (copy != NULL && record != NULL) memcpy(record, kernel, sizeof *kernel);
    unfinished |= kernel->end == 0;
    pthread_mutex_unlock(&mutex);
}

/* Count records as dropped for lack of space. */
void fake_cupti_drop(size_t count) { dropped += count; }
