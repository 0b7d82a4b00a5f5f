"""Services that answer requests: which GPU, which share of it and which batch each of them gets.

plans         what a planner decides: parts of GPUs, and what each part serves
latency       how long a batch takes, by its size and by the share of the GPU
interference  how much a neighbour on the same GPU slows a service down
cases         what a planner starts from: services, what is measured of their models, limits
planners      the planners by name
glet          glet and the baselines of its paper, with exactly the decisions of the authors' scheduler
orion         the default planner
"""
