/* A process without a free file descriptor asks the agent by a thread that has descriptors of its own. If the thread gets none, it is as if
 * no agent answered, and the process says why. */
#include "check.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "fake_driver.h"
#include "system/descriptors.h"

static bool can_leave;
static void leave(void)
{
    if (can_leave) orion_descriptors_leave();
}

#define orion_descriptors_leave leave
#include "agent/memory_wish.c"

#define DESCRIPTORS 32

static void use_up_descriptors(void)
{
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){DESCRIPTORS, DESCRIPTORS}) == 0);
    while (open("/dev/null", O_RDONLY) >= 0) {}
    CHECK(errno == EMFILE);
}

/* No agent listens. */
static void asks(const struct orion_gpu *gpu, uint32_t said)
{
    errno = 0;
    CHECK(orion_memory_ask(gpu, ORION_MEMORY, 1) == ORION_NO_ANSWER && errno == 0);
    CHECK(atomic_load(&orion_the_process->said) == said);
}

int main(void)
{
    const struct orion_gpu *gpu = fake_gpu(ORION_ROLE_BE);
    asks(gpu, 0);
    use_up_descriptors();
    can_leave = true;
    asks(gpu, 0); /* the thread has found that no agent listens */
    can_leave = false;
    asks(gpu, UINT32_C(1) << ORION_SAY_DESCRIPTORS);
    for (int descriptor = DESCRIPTORS / 2; descriptor < DESCRIPTORS; descriptor++)
        close(descriptor); /* a sanitizer needs some at the end */
    puts("memory_wish: ok");
    return 0;
}
