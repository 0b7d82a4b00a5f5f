/* Threads of the hook's own, in somebody else's process. */
#ifndef ORION_SPAWN_H
#define ORION_SPAWN_H

/* A detached thread with a small stack and all signals blocked. 0 or -1; errno stays. */
int orion_thread_spawn(void *(*body)(void *), void *argument);

#endif
