/* A batch with a wrong count: the driver may refuse it without reading its arrays, so the hook must not read beyond them. */
#include "check.h"

#include <stdint.h>
#include <sys/mman.h>

#include "fake_driver.h"
#include "learning/extent.h"

#define READABLE 32768u
#define WRONG (SIZE_MAX / 256)

/* READABLE bytes, and behind them memory that nobody may read. */
static void *memory_before_a_wall(void)
{
    char *memory = mmap(NULL, 2 * READABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + READABLE, READABLE, PROT_NONE) == 0);
    return memory;
}

static void an_unmanaged_process_reads_nothing(void)
{
    const void *wall = (char *)memory_before_a_wall() + READABLE;
    CHECK(orion_sum(wall, 1) == 0 && orion_bytes_of_boxes(wall, 1) == 0 && orion_bytes_decompressed(wall, 1) == 0);
}

static void a_wrong_count_reads_no_more_than_a_part(void)
{
    const void *memory = memory_before_a_wall();
    CHECK(orion_sum(memory, WRONG) == 0);
    CHECK(orion_bytes_of_boxes(memory, WRONG) == 0);
    CHECK(orion_bytes_decompressed(memory, WRONG) == 0);
}

static void without_arrays_there_are_no_bytes(void)
{
    CHECK(orion_sum(NULL, WRONG) == 0 && orion_bytes_of_boxes(NULL, WRONG) == 0 && orion_bytes_decompressed(NULL, WRONG) == 0);
    CHECK(orion_sum(memory_before_a_wall(), 0) == 0);
}

static void a_batch_has_the_bytes_of_its_entries(void)
{
    size_t sizes[3] = {1, 20, 300};
    CUDA_MEMCPY3D_BATCH_OP boxes[2] = {{.extent = {2, 3, 4}}, {.extent = {5, 1, 1}}};
    CUmemDecompressParams parts[2] = {{.srcNumBytes = 7}, {.srcNumBytes = 8}};
    CHECK(orion_sum(sizes, 3) == 321 && orion_bytes_of_boxes(boxes, 2) == 29 && orion_bytes_decompressed(parts, 2) == 15);
}

/* The first entries stand for all. */
static void a_longer_batch_has_more_bytes(void)
{
    enum { MANY = 100000 };
    size_t *sizes = malloc(MANY * sizeof *sizes);
    CHECK(sizes != NULL);
    for (size_t i = 0; i < MANY; i++) sizes[i] = 4096;
    CHECK(orion_sum(sizes, MANY) == MANY * (size_t)4096 && orion_sum(sizes, MANY / 2) == MANY * (size_t)2048);
    free(sizes);
}

int main(void)
{
    an_unmanaged_process_reads_nothing();
    fake_gpu(ORION_ROLE_BE);
    a_wrong_count_reads_no_more_than_a_part();
    without_arrays_there_are_no_bytes();
    a_batch_has_the_bytes_of_its_entries();
    a_longer_batch_has_more_bytes();
    puts("extent: ok");
    return 0;
}
