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
    report, tables, plots   `orion bench report`; plot_labels places the labels of points
    packing                 `orion bench pack`: an output folder as one file

"hp + be" is the sum of hp's and be's throughput, each divided by its throughput alone. The file of a failed run
contains the error in one sentence; the other runs continue.
"""
