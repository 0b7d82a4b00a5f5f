"""Measures a latency-critical process (hp) beside best-effort processes (be) on one GPU, under each system to compare.

Modules, in the order from the scenario file to the report:

    scenario, systems       the YAML file: workloads, arrivals, and the systems to compare
    names, plan             all runs of a scenario, in order, with the file of each
    schedule                when requests arrive
    gpus, shared_gpu, mps   the GPUs and their modes: environments of clients, private MPS daemon, private agents
    posts, roster           the worker processes of a run: which they are; started once and kept while needed
    runner                  the runs of one GPU
    host, phase_lock        prevent starts and ends of processes while any GPU measures; record disturbances
    results                 the output folder; an interrupted measurement resumes from it
    measurement, work_list  distribute the runs over GPUs
    progress, measure       `orion bench colocation`: the command and its progress bar
    run_files, analysis     read the output folder and compute figures, each against `alone` of the same round
    report, hiccups         `orion bench report`: tables and plots; unusually slow requests

The file of a failed run contains the error in one sentence; the other runs continue.
"""
