/* A function that exists so that programs link and load: it answers CUDA_ERROR_NOT_SUPPORTED, without reading its
 * arguments. Weak, so a function written by hand anywhere in the library takes its place. */
#ifndef ORION_SIM_STUB_H
#define ORION_SIM_STUB_H

#define SIM_STUB(name) \
    __attribute__((weak, visibility("default"))) int name(void) { return 801; /* CUDA_ERROR_NOT_SUPPORTED */ }

#endif
