"""glet and the baselines of its paper, with exactly the decisions of the authors' scheduler.

planners   glet, greedy, temporal and full-search: the same scheduler with different rules
schedule   the services one after the other, and what is tried when best fit fails
estimate   the parts that a service would take if every share were free
fit        best fit, as a trial and for real
readjust, merge, time_share   what follows if best fit fails
neighbours, network           what a new part does to the GPU's other part; glet's limit on input
batches, times, float32       the largest batch, the time of a batch, single precision
state      what changes while one case is decided

The rules keep glet's quirks, because a baseline that decides better is another baseline. Improvements belong to the
planner `orion`.
"""
