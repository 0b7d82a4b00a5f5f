"""Experiments of users: the demo, and what two processes on one GPU do to each other.

Experiments that need a checkout are in `measurements`, and are not installed.

Where to look:

    demo                    `orion demo`: three phases, a table, a picture
    colocation              `orion bench colocation`: hp beside be under every system of a scenario (see scenarios/)
    busy_periods            from a colocation's raw data: stalls, waits at the head of busy periods, what be loses
    threads_cost            `orion bench threads`: what clients as threads of one process cost

What they stand on:

    workload, workloads     what one process runs on the GPU; all kinds by name, their simulated stand-ins
    workers                 processes that run one or several of them on command, and their parent's side
    managed                 a private agent with slots, and the environment that puts a process under the hook
    job_file, job_run       `orion launch`: clients as threads of one process
    arrivals, estimates     Poisson arrivals; percentiles, paired ratios and their bootstrap intervals
    raw_data                the files that the measurements write
"""
