/* The list of all scenarios. A scenario checks itself and ends the process with status 1 if a check fails. */
#ifndef CLIENT_THREADS_SCENARIOS_H
#define CLIENT_THREADS_SCENARIOS_H

/* tests/inprocess/test_client_threads.py reads these names, and main.c makes its table from the list. */
/* clang-format off */
#define SCENARIOS \
    SCENARIO(be_waits_for_hp) SCENARIO(without_a_policy_no_client_waits) SCENARIO(a_policy_changes_under_a_waiter) \
    SCENARIO(a_held_copy_may_keep_a_lock_that_hp_needs) \
    SCENARIO(unknown_policies_are_refused) SCENARIO(unbound_threads_pass) SCENARIO(a_stream_keeps_its_client) \
    SCENARIO(the_legacy_stream_belongs_to_no_client) \
    SCENARIO(own_streams_have_priorities) SCENARIO(a_clients_calls_run_in_order) SCENARIO(binding_keeps_the_order) \
    SCENARIO(unbinding_keeps_the_order_in_each_context) SCENARIO(blocking_streams_keep_the_order) \
    SCENARIO(blocking_streams_keep_the_order_of_waits) SCENARIO(the_default_stream_follows_destroyed_streams) \
    SCENARIO(binding_keeps_the_order_beside_a_capture) \
    SCENARIO(a_context_synchronise_waits_for_its_own_client) SCENARIO(a_context_synchronise_waits_for_destroyed_streams) \
    SCENARIO(a_context_synchronise_waits_for_no_new_stream_of_another_client) \
    SCENARIO(a_synchronise_of_another_gpus_context_waits_for_it) SCENARIO(events_order_clients) \
    SCENARIO(a_stream_outlives_its_green_context) SCENARIO(streams_of_be_have_the_least_priority) \
    SCENARIO(launches_of_be_have_the_least_priority) SCENARIO(attributes_of_be_set_the_least_priority) \
    SCENARIO(launches_without_a_context_have_the_least_priority) SCENARIO(nodes_of_be_have_the_least_priority) \
    SCENARIO(captures_use_the_clients_stream) SCENARIO(hp_drains_without_a_synchronise) \
    SCENARIO(own_streams_end_with_their_context) SCENARIO(the_end_of_the_primary_context_ends_no_other_own_stream) \
    SCENARIO(stop_drains_and_unbinds) SCENARIO(roles_may_change_after_any_end) \
    SCENARIO(a_bound_thread_gets_the_stream_of_a_new_role) SCENARIO(wrong_calls_are_refused) \
    SCENARIO(a_client_of_an_agent_is_refused) SCENARIO(the_environment_names_hp) \
    SCENARIO(a_forked_child_starts_its_own_scheduler) SCENARIO(many_threads_at_random) SCENARIO(a_budget_lets_be_overlap)

/* The scenarios that need the library of `orion bench`. */
#define BASELINE_SCENARIOS \
    BASELINE(reef_pairs_one_launch_with_hps_launch) BASELINE(ticktock_alternates_iterations) \
    BASELINE(orion_2024_lets_be_run_beside_hp) BASELINE(streams_delay_no_client)
/* clang-format on */

#define SCENARIO(name) void name(void);
SCENARIOS
#undef SCENARIO
#define BASELINE(name) void name(void);
BASELINE_SCENARIOS
#undef BASELINE

#endif
