/* Libraries that a program opens with RTLD_DEEPBIND, as Taichi's Python module opens its compiler. Such a library and those that come
 * with it look names up in themselves and in the C library first. So their dlsym is the C library's, and if they are
 * linked with the driver, they call it past the hook.
 *
 * The hook exports dlopen and writes its own functions into these libraries once they are loaded, as the dynamic linker
 * would have done without the flag. All other names stay bound as the program wants it.
 *
 * Rejected: opening without the flag. Programs set it because two libraries define the same names (Taichi: LLVM).
 *
 * What a constructor of such a library looks up runs unmanaged, and so does a library that is opened by a bare name: the C
 * library then searches in the caller's paths, and the caller must not be the hook. */
#ifndef ORION_DEEP_BINDING_H
#define ORION_DEEP_BINDING_H

#include <stdbool.h>

/* Whether to open `path` by orion_deep_open; if not, the caller's call goes on to the C library. */
bool orion_deep_binds(const char *path, int mode);

/* dlopen, and then the names of `hook_functions` in the libraries that it has loaded. */
void *orion_deep_open(const char *path, int mode, void *(*hook_function)(const char *name));

#endif
