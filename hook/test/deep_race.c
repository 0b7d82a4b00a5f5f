/* Two threads open libraries with RTLD_DEEPBIND at the same time. The second library is in the list of loaded ones but only
 * partly relocated while the hook looks at that list for the first thread. The dynamic linker holds its lock then.
 *
 * With -DLIBRARY this file is the second library: an indirect function's resolver runs during the relocation, and waits.
 * Otherwise it is the program. It stands in front of the hook's dl_iterate_phdr, to start the second thread, and of its
 * dladdr, to let the resolver go on. Usage: deep_race FIRST SECOND. Prints the row "both". */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* At a constant address: the resolver runs before its library's variables can be reached. */
struct shared { _Atomic int resolving, go_on; };
#define SHARED ((struct shared *)(uintptr_t)0x2000000000)

#ifdef LIBRARY
static int answer(void) { return 1; }
static int (*resolve(void))(void)
{
    SHARED->resolving = 1;
    while (!SHARED->go_on) continue;
    return answer;
}
int deep_resolved(void) __attribute__((ifunc("resolve")));
void *deep_resolved_address(void) { return (void *)deep_resolved; }
void *deep_dlsym(void) { return (void *)dlsym; }
#else
static int (*next_walk)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
static int (*next_dladdr)(const void *, Dl_info *);
static const char *second_path;
static pthread_t second_thread;
static _Thread_local const char *first_path;

static void *open_second(void *unused) { return (void)unused, dlopen(second_path, RTLD_NOW | RTLD_DEEPBIND); }

static int has_first(struct dl_phdr_info *info, size_t size, void *argument)
{
    return (void)size, strcmp(info->dlpi_name, argument) == 0;
}

/* Before `main`: dlsym needs the lock that the second thread holds later. */
static void find_next(void)
{
    *(void **)&next_dladdr = dlsym(RTLD_NEXT, "dladdr");
    *(void **)&next_walk = dlsym(RTLD_NEXT, "dl_iterate_phdr");
}

int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    if (next_walk == NULL) find_next();
    if (first_path != NULL && next_walk(has_first, (void *)(uintptr_t)first_path)) {
        first_path = NULL;
        pthread_create(&second_thread, NULL, open_second, NULL);
        while (!SHARED->resolving) sched_yield();
    }
    return next_walk(visit, argument);
}

int dladdr(const void *address, Dl_info *info)
{
    if (next_dladdr == NULL) find_next();
    if (first_path == NULL) SHARED->go_on = 1;
    return next_dladdr(address, info);
}

static int is_hooks(void *library, void *hooks)
{
    void *(*function)(void) = library == NULL ? NULL : (void *(*)(void))dlsym(library, "deep_dlsym");
    return function != NULL && function() == hooks;
}

int main(int count, char **arguments)
{
    if (count < 3) return 2;
    if (mmap(SHARED, sizeof *SHARED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != SHARED)
        return 3;
    first_path = arguments[1], second_path = arguments[2];
    void *first = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND), *second = NULL;
    SHARED->go_on = 1;
    pthread_join(second_thread, &second);
    printf("both\t%s\t%s\n", first != NULL ? "open" : "failed", is_hooks(second, (void *)dlsym) ? "managed" : "not managed");
    return 0;
}
#endif
