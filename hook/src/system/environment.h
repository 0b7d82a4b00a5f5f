/* The process's environment variables as they were when the hook was loaded.
 *
 * The program may call setenv at any time, also while a thread of the hook runs. setenv moves the environment, so a
 * getenv at that moment may read freed memory. Therefore only the loading thread reads the environment, once, into
 * memory that never changes afterwards. What the program sets later applies to programs that it starts, not to itself.
 * Only be/connections.c reads the environment later: in the program's call in which the driver reads it, too.
 */
#ifndef ORION_ENVIRONMENT_H
#define ORION_ENVIRONMENT_H

#define ORION_PATH_LONGEST 4096u

/* A variable that is not set is "". A longer value is cut off. */
struct orion_environment {
    char root[ORION_PATH_LONGEST]; /* ORION_ROOT */
    char hp_client[24];            /* ORION_HP_CLIENT */
    char log_level[4];             /* ORION_LOG_LEVEL */
    char connections[4];           /* ORION_CONNECTIONS */
};

/* Any thread may call this. */
const struct orion_environment *orion_environment(void);

#endif
