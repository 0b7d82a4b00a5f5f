"""Experiments that users run: the demo, and benchmarks of processes that share one GPU.

Experiments that need a checkout are in `measurements`, which is not installed.

Experiments:

    demo                    `orion demo`: three phases, a table, a picture
    colocation              `orion bench colocation`: hp beside be under every system of a scenario (see scenarios/)
    programs                `orion bench programs`: public programs as hp and as be, by a colocation
    busy_periods            analyses a colocation's raw data: stalls, waits at the head of busy periods, be's lost time
    threads_cost            `orion bench threads`: the cost of clients that are threads of one process
    loadgen                 `orion loadgen`: requests to a server on a fixed schedule, and their latencies

Shared parts:

    workload, workloads     the interface of what one process runs on the GPU; all workloads, with simulated stand-ins
    workers                 processes that run workloads on command, and the parent that commands them
    managed                 a private agent with slots, and the environment that preloads the hook into a process
    job_file, job_run       `orion launch`: clients that are threads of one process
    arrivals                Poisson arrivals
    samples, estimates      figures of one run; ratios of two systems, with bootstrap intervals
    paired_turns            medians and quartiles of systems that are measured alternately
    late_heads              the queueing model that busy_periods uses
    raw_data, commandline   the files that the measurements write; parsers of the command lines
"""
