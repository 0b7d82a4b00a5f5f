/* A be stream whose work the valve may hold is destroyed when that work is complete, not when the program destroys it. */
#include "ending_streams.h"

/* The driver would keep the context on the GPU. */
static void a_stream_whose_work_may_be_held_is_destroyed_when_it_is_complete(void)
{
    struct orion_stream_record *stream_record = launch(0, 1);
    unsigned before = destroyed;
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    CHECK(orion_stream_ending(stream_of(0)));
    orion_window_reap(process, gpu);
    CHECK(destroyed == before && !is_free(stream_record));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(destroyed == before + 1 && is_free(stream_record));
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    launch(0, 1);
    prove((struct orion_proof){.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {stream_of(0), false}});
    CHECK(!orion_stream_ending(stream_of(0))); /* the work is complete */
    CHECK(destroyed == before + 1 && in_flight() == 0);
}

static void only_some_streams_are_kept(void)
{
    unsigned before = destroyed, kept = 0;
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    for (uintptr_t i = 0; i < 200; i++) {
        launch(i, 1);
        kept += orion_stream_ending(stream_of(i));
    }
    CHECK(kept == 64 && destroyed == before);
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(destroyed == before + 64 && in_flight() == 0);
}

static void kept_streams_end_with_their_context(void)
{
    unsigned before = destroyed;
    for (int primary = 0; primary < 2; primary++) {
        struct orion_stream_record *stream_record = launch(0, 1);
        atomic_store(&orion_be(gpu)->valve.in_use, 1);
        CHECK(orion_stream_ending(stream_of(0)));
        if (primary) orion_primary_ending(0);
        else orion_context_ending(FAKE_CONTEXT);
        if (primary) orion_context_ended();
        else orion_context_destroyed(FAKE_CONTEXT, CUDA_SUCCESS);
        CHECK(is_free(stream_record) && destroyed == before + (unsigned)primary); /* a context destroys its streams itself */
        for (uintptr_t i = 1; i <= made; i++) events[i] = NONE;
        alive = 0;
    }
    CHECK(orion_be(gpu)->kept_streams == 0);
}

static int primary_lives;
static CUresult CUDAAPI primary_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = primary_lives;
    return CUDA_SUCCESS;
}

/* It ends with a green context if the program has released it before, and nothing else holds it. Before the driver's call nobody
 * knows, so the work still counts. */
static void a_green_context_may_hold_the_last_reference_to_the_primary_one(void)
{
    orion_driver.cuDevicePrimaryCtxGetState = primary_state;
    for (unsigned i = 0; i < 3; i++) {
        bool released = i > 0, ends = i == 2;
        primary_lives = 1;
        struct orion_stream_record *stream_record = launch(0, 30);
        atomic_store(&process->primary_retains[0], !released);
        CHECK(alive > 0 && in_flight() > 0);
        orion_green_ending((CUgreenCtx)0x70);
        CHECK(alive > 0 && in_flight() > 0);
        primary_lives = !ends;
        orion_context_ended();
        CHECK(is_free(stream_record) == ends && (in_flight() == 0) == ends);
    }
}

int main(void)
{
    begin();
    a_stream_whose_work_may_be_held_is_destroyed_when_it_is_complete();
    only_some_streams_are_kept();
    kept_streams_end_with_their_context();
    a_green_context_may_hold_the_last_reference_to_the_primary_one();
    puts("kept_streams: ok");
    return 0;
}
