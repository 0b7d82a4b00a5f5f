"""Experiments that users run: the demo, and benchmarks of processes that share one GPU.

Experiments that need a checkout are in `measurements`, which is not installed.

Experiments:

    demo                    `orion demo`: three phases, a table, a picture
    colocation              `orion bench colocation`: hp beside be under every system of a scenario (see scenarios/)
    busy_periods            analyses a colocation's raw data: stalls, waits at the head of busy periods, be's lost time
    threads_cost            `orion bench threads`: the cost of clients that are threads of one process

Shared parts:

    workload, workloads     what one process runs on the GPU; all kinds by name, and their simulated stand-ins
    workers                 processes that run workloads on command, and the parent that commands them
    managed                 a private agent with slots, and the environment that preloads the hook into a process
    job_file, job_run       `orion launch`: clients that are threads of one process
    arrivals, estimates     Poisson arrivals; percentiles, paired ratios and their bootstrap intervals
    raw_data                the files that the measurements write
"""
