/* Connections: a be process has a connection for kernels for each of up to 32 streams.
 *
 * CUDA puts a process's streams into eight connections, channels of the GPU. Beside a recurrent network of cuDNN, which has 32
 * streams, up to half of hp's requests took 1.9 times as long while the network was held, and with 32 connections none did
 * (docs/results/programs.md). Probably streams that share a connection wait for each other inside the driver: a process that is held
 * in a wait for an event keeps its whole time slices (be/event_words.h). Clients of an MPS daemon share a pool of connections, and no
 * time slices separate them: they keep CUDA's number. So does a program that sets CUDA_DEVICE_MAX_CONNECTIONS itself.
 *
 * The driver makes all connections with the context. CUDA's variable also raises the number for copies, from 8 to 32, which gains
 * nothing and doubles the time of the start and the end. So the hook sets CUDA_DEVICE_MAX_COPY_CONNECTIONS, too. 16 connections for
 * kernels are too few: a quarter of hp's requests took 1.9 times as long beside a network of four layers.
 *
 * Programs that the process starts later inherit the variables. Rejected: to remove them after cuInit, because the driver may read them
 * when a context is created.
 *
 * Rejected: CUDA's variables in the pod, or from a constructor. Programs set it only if it is not set, and then insist on their value. */
#ifndef ORION_CONNECTIONS_H
#define ORION_CONNECTIONS_H

/* Called before the driver's cuInit, which reads the environment. The first call adds CUDA's variables for a be process. */
void orion_connections_choose(void);

#endif
