"""Experiments: the demo, what the hook costs, and what two processes on one GPU do to each other.

Where to look:

    demo                    `orion demo`: three phases, a table, a picture
    colocation              the measurement behind docs/results: a latency-critical process beside a trainer, on a GPU
    solo_overhead           throughput of a lone process with the hook on and off
    hook_cost               what one driver call costs with the hook: instructions (simulated GPU) or time (GPU)
    report                  Markdown tables from the raw JSON of the above

Each of these is a script (`python -m orion.bench.NAME`). Below them:

    workload                what one process runs on the GPU; loads_simulated and loads_torch hold the kinds
    stand_ins               which simulated workload takes a real one's place where a script is only tried
    worker                  the process that runs a workload on command; crew is its parent's side
    managed                 a private agent with slots, and the environment that puts a process under the hook
    arrivals, estimates     Poisson arrivals; percentiles, paired ratios and their bootstrap intervals
    raw_data                the files that the measurements write
"""
