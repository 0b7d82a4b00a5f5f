/* The system calls that a program without libc needs. A call returns a negative errno if it fails.
 *
 * The program runs on the node itself, and nodes differ: some have musl, some have no loader at all. A static glibc would
 * do, but not every compiler that builds a release has one (Dockerfile: zig). */
#ifndef ORION_SYSTEM_CALLS_H
#define ORION_SYSTEM_CALLS_H

#include <asm/unistd.h>
#include <stddef.h>

static inline long orion_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "orion-await-agent knows the system calls of x86_64 and arm64"
#endif
}

/* The kernel starts a program here, with the number of arguments and then the arguments on the stack. */
#if defined(__x86_64__)
#define ORION_ENTRY(function) \
    __asm__(".text\n.globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call " #function "\n")
#else
#define ORION_ENTRY(function) __asm__(".text\n.globl _start\n_start:\n mov x29, #0\n mov x0, sp\n bl " #function "\n")
#endif

#endif
