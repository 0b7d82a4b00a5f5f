/* Reaches driver functions in every way that programs use, and prints the result of each: WAY, object, symbol,
 * separated by tabs.
 *
 * With -DUNLINKED the program is not linked with the driver. Without a driver, or with a real one, it prints what it
 * finds. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) /* the oldest version of each glibc function, which every glibc has */
#define DLSYM_VERSION "GLIBC_2.2.5"
#else
#define DLSYM_VERSION "GLIBC_2.17"
#endif

typedef CUresult procedure_v1(const char *, void **, int, cuuint64_t);
typedef CUresult procedure_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
typedef void *look_up(void *, const char *);

static void say(const char *way, void *address)
{
    Dl_info info;
    if (address == NULL || !dladdr(address, &info)) printf("%s\tnone\t%s\n", way, address == NULL ? "NULL" : "?");
    else printf("%s\t%s\t%s\n", way, strrchr(info.dli_fname, '/') + 1, info.dli_sname != NULL ? info.dli_sname : "?");
}

static void *in_constructor;
__attribute__((constructor)) static void early(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL) in_constructor = dlsym(driver, "cuLaunchKernel");
}

static void *in_thread(void *driver) { return dlsym(driver, "cuLaunchKernel"); }

static void say_procedure(procedure_v2 *procedure, const char *way, const char *name, int version, cuuint64_t flags)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    CUresult result = procedure(name, &found, version, flags, &status);
    say(way, result == CUDA_SUCCESS ? found : NULL);
    printf("%s status\t%d\t%d\n", way, (int)result, (int)status);
}

static void procedures(void *driver)
{
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    procedure_v1 *first = (procedure_v1 *)dlsym(driver, "cuGetProcAddress");
    procedure_v2 *second = (procedure_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    void *found = NULL;
    if (first == NULL || second == NULL) return;
    first("cuLaunchKernel", &found, 11030, CU_GET_PROC_ADDRESS_DEFAULT);
    say("procedure v1", found);
    say_procedure(second, "procedure", "cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_DEFAULT);
    say_procedure(second, "procedure legacy", "cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    say_procedure(second, "procedure per thread", "cuLaunchKernel", 13000, per_thread);
    say_procedure(second, "procedure old", "cuMemcpyHtoD", 2000, CU_GET_PROC_ADDRESS_DEFAULT);
    say_procedure(second, "procedure newer", "cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_DEFAULT);
    say_procedure(second, "procedure newer per thread", "cuMemcpyHtoD", 13000, per_thread);
    say_procedure(second, "procedure unknown version", "cuLaunchKernel", 99000, CU_GET_PROC_ADDRESS_DEFAULT);
    say_procedure(second, "procedure passed", "cuDeviceGetCount", 13000, CU_GET_PROC_ADDRESS_DEFAULT);
    say_procedure(second, "procedure missing", "cuNoSuchFunction", 13000, CU_GET_PROC_ADDRESS_DEFAULT);
    say_procedure(second, "procedure itself", "cuGetProcAddress", 13000, CU_GET_PROC_ADDRESS_DEFAULT);
}

static void look_ups(void *driver)
{
    pthread_t thread;
    void *found = NULL;
    say("constructor", in_constructor);
    say("handle", dlsym(driver, "cuLaunchKernel"));
    say("default", dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
    say("next", dlsym(RTLD_NEXT, "cuLaunchKernel"));
    say("program", dlsym(dlopen(NULL, RTLD_NOW), "cuLaunchKernel"));
    say("handle per thread", dlsym(driver, "cuLaunchKernel_ptsz"));
    say("handle passed", dlsym(driver, "cuDeviceGetCount"));
    say("handle 32 bit", dlsym(driver, "cuMemAlloc"));
    say("handle get", dlsym(driver, "cuGetProcAddress_v2"));
    if (pthread_create(&thread, NULL, in_thread, driver) == 0) pthread_join(thread, &found);
    say("thread", found);
    say("look-up of dlsym", dlsym(RTLD_NEXT, "dlsym"));
    say("look-up of dlvsym", dlsym(RTLD_DEFAULT, "dlvsym"));
    look_up *again = (look_up *)dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
    say("versioned look-up of dlsym", (void *)again);
    say("handle by the looked-up", again == NULL ? NULL : again(driver, "cuLaunchKernel"));
    say("other function", dlsym(RTLD_NEXT, "puts"));
    say("other function versioned", dlvsym(RTLD_DEFAULT, "puts", DLSYM_VERSION));
    say("versioned missing", dlvsym(driver, "cuLaunchKernel", "NO_SUCH_VERSION"));
}

static void errors(void *driver)
{
    dlerror();
    void *found = dlsym(driver, "cuNoSuchFunction");
    const char *message = dlerror();
    if (message == NULL) message = "no error";
    printf("error of a missing one\t%s\t%s\n", found == NULL ? "none" : "found", message);
    dlsym(driver, "cuLaunchKernel");
    message = dlerror();
    printf("error of a found one\tfound\t%s\n", message != NULL ? message : "no error");
}

int main(void)
{
#ifndef UNLINKED
    say("linked", (void *)cuLaunchKernel);
    printf("call\t%d\t-\n", (int)cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
#endif
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL) look_ups(driver), procedures(driver), errors(driver);
    else say("default", dlsym(RTLD_DEFAULT, "cuLaunchKernel")), say("next", dlsym(RTLD_NEXT, "cuLaunchKernel"));
    unsigned long *launches = driver != NULL ? dlsym(driver, "stub_launches") : NULL;
    if (launches != NULL) printf("launches\t%lu\t-\n", *launches);
    for (int i = 0; driver != NULL && i < 2; i++) dlclose(driver); /* close what this program opened */
    say("closed", in_constructor);
    return 0;
}
