/* The scenarios, by file. Each checks itself and ends the process with status 1 if it fails. */
#ifndef CLIENT_THREADS_SCENARIOS_H
#define CLIENT_THREADS_SCENARIOS_H

/* SCENARIO(name) of each: tests read this list, and main.c makes its table from it. */
/* clang-format off */
#define SCENARIOS \
    SCENARIO(be_waits_for_hp) SCENARIO(without_a_policy_nobody_waits) SCENARIO(a_policy_changes_under_a_waiter) \
    SCENARIO(unknown_policies_are_refused) SCENARIO(unbound_threads_pass) SCENARIO(a_stream_keeps_its_client) \
    SCENARIO(own_streams_have_priorities) SCENARIO(a_client_has_one_order) SCENARIO(binding_hands_over) \
    SCENARIO(a_context_synchronise_is_the_clients_own) SCENARIO(events_order_clients) \
    SCENARIO(captures_are_the_clients_own) SCENARIO(hp_drains_without_being_waited_for) \
    SCENARIO(own_streams_end_with_their_context) SCENARIO(stop_drains_and_unbinds) SCENARIO(wrong_calls_are_refused) \
    SCENARIO(an_agents_client_is_refused) SCENARIO(the_environment_names_hp) SCENARIO(a_child_begins_anew) \
    SCENARIO(many_threads_at_random) SCENARIO(a_budget_lets_be_overlap)

/* Those that need the library of `orion bench`. */
#define BASELINE_SCENARIOS \
    BASELINE(reef_pairs_once_with_hps_launch) BASELINE(ticktock_alternates_iterations) \
    BASELINE(orion_2024_lets_be_run_beside_hp) BASELINE(streams_hold_nobody_back)
/* clang-format on */

#define SCENARIO(name) void name(void);
SCENARIOS
#undef SCENARIO
#define BASELINE(name) void name(void);
BASELINE_SCENARIOS
#undef BASELINE

#endif
