/* Kernels that show and use the GPU's clock: `tick` spins for a number of cycles; `multiply` keeps the tensor cores of all
 * SMs busy, so the GPU draws much power. */
#ifndef LONG_KERNELS_HEAVY_H
#define LONG_KERNELS_HEAVY_H

#include "../graph_cuts/base.h"

#define SUMS 8 /* independent sums of a warp, of four numbers each */
#define GREEN_MOST 4

/* tick stores the GPU's time in ns at its begin and end, and the cycles between, at `out`. */
static const char tick_ptx[] =
    ".visible .entry tick(.param .u64 cycles,.param .u64 out,.param .u64 us){.reg .u64 %begin,%end,%first,%now,%cycles,%out;"
    ".reg .u32 %b,%t;.reg .pred %more,%other;ld.param.u64 %cycles,[cycles];ld.param.u64 %out,[out];mov.u64 %begin,%globaltimer;"
    "mov.u64 %first,%clock64;L:mov.u64 %now,%clock64;sub.u64 %now,%now,%first;setp.lt.u64 %more,%now,%cycles;@%more bra L;"
    "mov.u64 %end,%globaltimer;mov.u32 %b,%ctaid.x;mov.u32 %t,%tid.x;or.b32 %b,%b,%t;setp.ne.u32 %other,%b,0;@%other bra E;"
    "st.global.u64 [%out],%begin;st.global.u64 [%out+8],%end;st.global.u64 [%out+16],%now;E:ret;}\n";
static const char heavy_simulated[] =
    "orion-sim 1\nkernel tick duration_us=@2 sms=grid params=8,8,8\nkernel multiply duration_us=@2 sms=grid params=8,8,8\n";

static CUfunction tick_kernel, multiply_kernel;
static double multiply_us; /* of one iteration */
static struct { uint32_t sms; CUstream stream; } green[GREEN_MOST];

static size_t text_used;
static char heavy_ptx[16384];

__attribute__((format(printf, 1, 2))) static void text(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    text_used += (size_t)vsnprintf(heavy_ptx + text_used, sizeof heavy_ptx - text_used, format, values);
    va_end(values);
}

/* Its operands are pseudo-random numbers between 1 and 2 with random signs, so the bits in the multipliers change. */
static void write_multiply(void)
{
    text(".visible .entry multiply(.param .u64 iterations,.param .u64 out,.param .u64 us){.reg .u64 %%left,%%out;.reg .b32 %%a<16>,"
         "%%b<8>,%%x;.reg .f32 %%d<%d>;.reg .pred %%more,%%never;ld.param.u64 %%left,[iterations];ld.param.u64 %%out,[out];"
         "mov.u32 %%x,%%tid.x;add.u32 %%x,%%x,1;",
         SUMS * 4);
    for (int i = 0; i < 24; i++)
        text("mul.lo.u32 %%x,%%x,1664525;add.u32 %%x,%%x,1013904223;and.b32 %%%c%d,%%x,0x807F807F;or.b32 %%%c%d,%%%c%d,0x3F803F80;",
             i < 16 ? 'a' : 'b', i % 16, i < 16 ? 'a' : 'b', i % 16, i < 16 ? 'a' : 'b', i % 16);
    for (int i = 0; i < SUMS * 4; i++) text("mov.f32 %%d%d,0f00000000;", i);
    text("\nL:");
    for (int i = 0; i < 16; i++) {
        int a = i / 4 * 4, b = i % 4 * 2, d = i % SUMS * 4;
        text("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%%d%d,%%d%d,%%d%d,%%d%d},{%%a%d,%%a%d,%%a%d,%%a%d},{%%b%d,%%b%d},"
             "{%%d%d,%%d%d,%%d%d,%%d%d};\n",
             d, d + 1, d + 2, d + 3, a, a + 1, a + 2, a + 3, b, b + 1, d, d + 1, d + 2, d + 3);
    }
    text("sub.u64 %%left,%%left,1;setp.ne.u64 %%more,%%left,0;@%%more bra L;");
    for (int i = 1; i < SUMS * 4; i++) text("add.f32 %%d0,%%d0,%%d%d;", i);
    text("setp.eq.u64 %%never,%%out,1;@%%never st.global.f32 [%%out],%%d0;ret;}\n");
}

static void load_heavy(void)
{
    CUmodule module;
    text_used = 0;
    text(".version 8.0\n.target sm_80\n.address_size 64\n%s", tick_ptx);
    write_multiply();
    must(cuModuleLoadData(&module, simulated ? heavy_simulated : heavy_ptx), "module");
    must(cuModuleGetFunction(&tick_kernel, module, "tick"), "kernel");
    must(cuModuleGetFunction(&multiply_kernel, module, "multiply"), "kernel");
}

static CUstream green_stream(uint32_t wanted)
{
    CUdevResource all, part;
    CUstream result;
    must(cuGreenCtxStreamCreate(&result, green_of(wanted, &all, &part), CU_STREAM_NON_BLOCKING, 0), "green stream");
    return result;
}

/* The stream for work on so many SMs; 0: all. */
static CUstream stream_of(uint32_t sms)
{
    for (int i = 0; sms && i < GREEN_MOST; i++) {
        if (!green[i].sms) green[i].sms = sms, green[i].stream = green_stream(sms);
        if (green[i].sms == sms) return green[i].stream;
    }
    return stream;
}

static void multiply_times(uint64_t iterations, uint64_t us, uint32_t sms)
{
    uint64_t out = 0;
    void *parameters[] = {&iterations, &out, &us};
    unsigned blocks = 2 * (sms ? sms : BLOCKS);
    must(cuLaunchKernel(multiply_kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream_of(sms), parameters, NULL), "launch");
}

static void multiply(uint64_t us, uint32_t sms) { multiply_times((uint64_t)((double)us / multiply_us) + 1, us, sms); }

/* Loads the kernels, and measures how long an iteration takes when the GPU is warm. */
static void prepare_heavy(void)
{
    const uint64_t iterations = 5000;
    load_heavy();
    for (int turn = 0; turn < (simulated ? 1 : 20); turn++) {
        double begun = now_us();
        multiply_times(iterations, 1000, 0);
        must(cuStreamSynchronize(stream), "synchronise");
        multiply_us = (now_us() - begun) / (double)iterations;
    }
}

#endif
