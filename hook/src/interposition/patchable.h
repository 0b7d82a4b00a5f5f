/* Functions of the hook whose first bytes a library overwrites.
 *
 * UCX writes a jump of 13 or 14 bytes to a function of its own over the first bytes of cuMemAlloc, cuMemMap and others, to learn what
 * memory the program has. It keeps a copy of the instructions that it overwrites, and calls on through it. It understands only a few
 * instructions: a push, a move of an immediate, a subtraction from the stack pointer. Where a compiler put others among the first ones, UCX
 * leaves the function alone and misses its memory. The driver's own functions begin with many pushes.
 *
 * So each function for memory begins with two subtractions of 0 from the stack pointer, of 7 bytes each, and a jump to its body. They cost
 * three instructions, and no launch makes them. Rejected: -fno-omit-frame-pointer (gcc mixes other instructions into the pushes, and a
 * short function has too few), -fpatchable-function-entry (UCX does not understand the NOPs). On arm64 UCX copies nothing. */
#ifndef ORION_PATCHABLE_H
#define ORION_PATCHABLE_H

#if defined(__x86_64__)
#define ORION_SUBTRACT_NOTHING "\t.byte 0x48, 0x81, 0xec, 0, 0, 0, 0\n" /* sub $0, %rsp; assemblers choose a shorter form */
#define ORION_LABEL(label, visibility) \
    "\t." visibility " " label "\n" \
    "\t.type " label ", @function\n" label ":\n"

/* Defines wrapped_NAME and the exported NAME, at one address. The body follows. */
#define PATCHABLE(name, parameters) \
    __attribute__((used)) static CUresult body_##name parameters; \
    __attribute__((visibility("hidden"))) CUresult wrapped_##name parameters; \
    __asm__("\t.pushsection .text\n" \
            "\t.balign 16\n" \
            "\t.globl wrapped_" #name "\n" ORION_LABEL("wrapped_" #name, "hidden") \
                ORION_LABEL(#name, "globl") "\t.cfi_startproc\n" ORION_SUBTRACT_NOTHING ORION_SUBTRACT_NOTHING "\tjmp body_" #name \
                                            "\n" \
                                            "\t.cfi_endproc\n" \
                                            "\t.size wrapped_" #name ", . - wrapped_" #name "\n" \
                                            "\t.size " #name ", . - " #name "\n" \
                                            "\t.popsection\n"); \
    static CUresult body_##name parameters
#else
#define PATCHABLE INTERPOSED
#endif

#endif
