"""Measures a latency-critical process (hp) beside best-effort processes (be) on one GPU, under each system to compare.

Modules, in the order from the scenario file to the report:

    scenario, systems       the YAML file: workloads, arrivals, and the systems to compare
    names, plan             all runs of a scenario, in order, with the file of each
    schedule                when requests arrive
    gpus, shared_gpu, mps   the GPUs and their modes: environments of clients, private MPS daemon, private agents
    posts, roster           which worker processes a run needs; the roster starts and keeps them
    runner                  the runs of one GPU
    host, phase_lock        prevent starts and ends of processes during runs on any GPU; record disturbances
    results                 the output folder; an interrupted measurement resumes from it
    measurement, work_list  distribute the runs over GPUs
    progress, measure       `orion bench colocation`: the command and its progress bar
    run_files, rates        read the output folder; throughput of hp and be
    analysis, hiccups       figures, each compared with `alone` of the same round; unusually slow requests
    ceiling, ceilings       a queueing model of the throughput of hp + be at each p99; its results for one pair
    summary                 the figures as data
    targets, target_pairs   whether the figures meet Orion's targets
    threads_verdict         the same check for clients that are threads of one process
    programs                the figures of public programs, by program and role
    report, tables, plots   `orion bench report`; plot_labels places the labels of points
    packing                 `orion bench pack`: an output folder as one file
    predicted_pairs         `orion simulate validate`: each pair predicted, without the pair's own runs
    work_alone              what the runs of hp alone and be alone say about the work, for that prediction

Words:

    system      a way in which hp and be share a GPU, such as time slices, MPS, or Orion with a policy
    pair        one hp workload beside one be entry; an entry is one or several equal be processes
    run         one measurement of some seconds: a pair under one system, hp alone, or be alone
    window      the part of a run in which figures count, between the lead-in and the end
    round       one repetition of all runs; figures are compared within a round
    unit        all runs of one hp in one round; one GPU makes all runs of a unit
    reference   a run of hp alone or be alone, with which the other runs of the round are compared
    post        the description of one process that a run needs
    hp + be     the sum of hp's and be's throughput, each divided by its throughput alone

The file of a failed run contains the error in one sentence; the other runs continue.
"""
