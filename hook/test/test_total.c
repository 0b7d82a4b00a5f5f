/* The total memory of a GPU: the limit of the slot at once, whether or not the process uses the GPU by CUDA, an agent answers,
 * or a join is under way. The question makes no client. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "agent/credit.h"
#include "fake_driver.h"
#include "system/environment.h"
#include "system/system.h"

#define GPUS 8
#define PATH_LONGEST (ORION_PATH_LONGEST + sizeof "/memory-limit")
#define WHOLE ((size_t)80 << 30)
#define LIMIT ((size_t)512 << 20)

static size_t total_of(CUdevice device)
{
    size_t total = WHOLE;
    errno = 7;
    orion_room_is_asked(device, NULL, &total);
    CHECK(errno == 7);
    return total;
}

static void in_slot(CUdevice device, char path[PATH_LONGEST], const char *name)
{
    char uuid[48], directory[ORION_PATH_LONGEST];
    CHECK(orion_gpu_name(device, uuid) && orion_agent_directory(uuid, directory));
    CHECK(mkdir(directory, 0700) == 0 || errno == EEXIST);
    snprintf(path, PATH_LONGEST, "%s/%s", directory, name);
}

/* As the agent writes it: an empty limit removes the file. */
static void slot_says(CUdevice device, const char *limit)
{
    char path[PATH_LONGEST];
    in_slot(device, path, "memory-limit");
    unlink(path);
    FILE *file = limit[0] == '\0' ? NULL : fopen(path, "w");
    if (file != NULL) CHECK(fputs(limit, file) >= 0 && fclose(file) == 0);
}

static void the_file_says_the_limit(void)
{
    CHECK(total_of(0) == WHOLE);
    slot_says(0, "536870912\n");
    CHECK(total_of(0) == LIMIT && total_of(1) == WHOLE);
    slot_says(0, "268435456\n");
    CHECK(total_of(0) == LIMIT / 2);
    slot_says(0, "999999999999\n");
    CHECK(total_of(0) == WHOLE);
    slot_says(0, "");
    CHECK(total_of(0) == WHOLE);
    CHECK(total_of(-1) == WHOLE && total_of(ORION_GPUS) == WHOLE);
}

/* Its socket takes connections, but nobody answers on them. */
static void an_agent_that_hangs(CUdevice device)
{
    char path[PATH_LONGEST];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    in_slot(device, path, "agent.sock");
    CHECK(snprintf(address.sun_path, sizeof address.sun_path, "%s", path) < (int)sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 8) == 0);
}

static void an_agent_that_hangs_delays_the_first_question_only(void)
{
    for (CUdevice device = 0; device < GPUS; device++) {
        an_agent_that_hangs(device);
        slot_says(device, "536870912\n");
    }
    uint64_t began = orion_now();
    for (CUdevice device = 0; device < GPUS; device++) CHECK(total_of(device) == LIMIT);
    CHECK(orion_now() - began < ORION_SECOND); /* 2 s, if it delayed each */
}

static void no_question_made_a_client(void) { CHECK(orion_process_gpus(orion_process_started()) == 0); }

static void a_join_under_way_delays_no_question(void)
{
    struct orion_gpu *gpu = fake_gpu_of(2, ORION_ROLE_NONE);
    atomic_store(&gpu->join, ORION_JOIN_TRYING);
    uint64_t began = orion_now();
    CHECK(total_of(2) == LIMIT);
    atomic_store(&gpu->known_limit, LIMIT / 4);
    CHECK(total_of(2) == LIMIT); /* as the agent may say what the file does not */
    CHECK(orion_now() - began < ORION_SECOND);
    atomic_store(&gpu->join, ORION_JOIN_UNMANAGED);
    CHECK(total_of(2) == LIMIT / 4);
}

static void the_grant_of_a_client_holds(void)
{
    struct orion_gpu *gpu = fake_gpu_of(3, ORION_ROLE_BE);
    CHECK(total_of(3) == WHOLE);
    ((struct orion_grant_page *)(uintptr_t)gpu->grant)->copy[0].memory_limit_bytes = LIMIT * 2;
    CHECK(total_of(3) == LIMIT * 2);
}

/* With threads as clients the process joins no slot, so none limits it. */
static void what_joins_no_slot_has_no_limit(void)
{
    struct orion_process *process = orion_process_started();
    atomic_store(&process->scheduler, 1);
    fake_gpu_of(4, ORION_ROLE_NONE);
    CHECK(total_of(4) == WHOLE && total_of(5) == WHOLE);
    atomic_store(&process->scheduler, 0);
    CHECK(total_of(4) == WHOLE && total_of(5) == LIMIT);
}

static void remove_all(const char *root)
{
    char path[PATH_LONGEST];
    for (CUdevice device = 0; device < GPUS; device++) {
        slot_says(device, "");
        in_slot(device, path, "agent.sock");
        CHECK(unlink(path) == 0);
        *strrchr(path, '/') = '\0';
        CHECK(rmdir(path) == 0);
    }
    CHECK(chdir(root) == 0 && rmdir("slots") == 0 && rmdir(root) == 0);
}

int main(int count, char **arguments)
{
    char template[] = "/tmp/orion-total-XXXXXX";
    if (count < 2) { /* the hook reads ORION_ROOT when the program starts */
        const char *root = mkdtemp(template);
        CHECK(root != NULL && setenv("ORION_ROOT", root, 1) == 0);
        execl("/proc/self/exe", arguments[0], root, (char *)NULL);
        return 1;
    }
    CHECK(chdir(arguments[1]) == 0 && mkdir("slots", 0700) == 0);
    orion_driver.cuDeviceGetUuid_v2 = fake_uuid;
    the_file_says_the_limit();
    an_agent_that_hangs_delays_the_first_question_only();
    no_question_made_a_client();
    a_join_under_way_delays_no_question();
    the_grant_of_a_client_holds();
    what_joins_no_slot_has_no_limit();
    remove_all(arguments[1]);
    puts("total: ok");
    return 0;
}
