/* Libraries that a program opens with RTLD_DEEPBIND, as Taichi's Python module opens its compiler. Such a library and those that come
 * with it look names up in themselves and in the C library first. So their dlsym is the C library's, and if they are
 * linked with the driver, they call it past the hook.
 *
 * The hook exports dlopen and writes its own functions into these libraries once they are loaded, as the dynamic linker
 * would have done without the flag. It writes only where the dynamic linker has put the function that the hook's replaces.
 * So all other names stay bound as the program wants it, and so does a name for which the program has chosen another function.
 *
 * Rejected: opening without the flag. Programs set it because two libraries define the same names (Taichi: LLVM).
 *
 * Libraries that load the driver themselves often keep its functions in variables of the same names (NVIDIA's cuda_drvapi_dynlink.c,
 * cuew). The dynamic linker binds such a library's uses of its variables to the hook's functions, because the hook comes first. The
 * library would overwrite the hook's code. So before a library opens the driver, the hook binds such variables to themselves.
 * Rejected: the same for functions that a library has under the driver's names. They may be what the hook is there to replace. And
 * the hook would have to do so before the first call, so after each dlopen; then it, and not the program, would be
 * the caller, whose folders the C library searches.
 *
 * What a constructor of such a library looks up runs unmanaged. So does a library that is opened by a bare name, or by a path
 * with `$ORIGIN`: the C library then looks where the caller is, and the caller must not be the hook. */
#ifndef ORION_DEEP_BINDING_H
#define ORION_DEEP_BINDING_H

#include <stdbool.h>

/* A function, and the hook's instead of it. NULL: there is none. */
struct orion_replaced { void *real, *hooks; };

/* Whether to open `path` by orion_deep_open; if not, the caller's call goes on to the next dlopen. */
bool orion_deep_binds(const char *path, int mode);

/* The next dlopen, and then the hook's functions in the libraries that it has loaded. */
void *orion_deep_open(const char *path, int mode, struct orion_replaced (*replaced)(const char *name));

/* Whether `path` names the driver; and what to do before it is opened. */
bool orion_opens_driver(const char *path);
void orion_bind_variables(struct orion_replaced (*replaced)(const char *name));

#endif
