/* A program that is built with `-fsanitize=address` runs with the hook before it.
 *
 * Its shared runtime, gcc's default, ends the program if another library comes first, and LD_PRELOAD puts the hook first. The
 * runtime asks this function for the defaults of its options before it looks. ASAN_OPTIONS has precedence over them. A program
 * with a function of this name gets its own, because the dynamic linker looks there first: then the user sets ASAN_OPTIONS.
 *
 * What the check is for does not hold here: the hook replaces none of the functions that the runtime intercepts, other than by
 * looking up the next one of that name. Weak, because a test program may be linked with a runtime that has the function, too. */
__attribute__((weak, visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }
