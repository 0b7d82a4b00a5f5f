"""Experiments: the demo, what the hook costs, and what two processes on one GPU do to each other.

Where to look:

    demo                    `orion demo`: three phases, a table, a picture
    colocation              `orion bench colocation`: hp beside be under every system of a scenario (see scenarios/)
    solo_overhead           throughput of a lone process with the hook on and off
    hook_cost               what one driver call costs with the hook: instructions (simulated GPU) or time (GPU)
    report                  Markdown tables from the raw JSON of these two
    busy_periods            from a colocation's raw data: stalls, waits at the head of busy periods, what be loses

The last four are scripts (`python -m orion.bench.NAME`). Below them:

    workload, workloads     what one process runs on the GPU; all kinds by name, their simulated stand-ins
    worker, worker_threads  the process that runs one or several of them on command; commands says which there are
    crew                    its parent's side
    managed                 a private agent with slots, and the environment that puts a process under the hook
    arrivals, estimates     Poisson arrivals; percentiles, paired ratios and their bootstrap intervals
    raw_data                the files that the measurements write
"""
