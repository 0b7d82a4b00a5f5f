"""Services on GPUs: cases that planners decide, and what requests feel under a plan.

rates        rates over time, and arrivals at these rates
dispatch     divides a service's requests among the parts that serve it
batches      one part that serves one batch at a time: orders fifo and edf, drop rules
slices       one part on which the GPU alternates between the services' processes
confirm      tries out a plan in one call: the miss ratio of each service
scenario     the user's file of a scenario; reading makes a setting of it
arriving     the requests of each service of a scenario
planned_*    the plan of a scenario that has none
simulating   all parts of a scenario
results      the log and the report
cases_*      many cases that planners decide: their files, and the runs in several processes

The parts do not influence each other, except through slowdowns that are constant. Each request is dispatched when it
arrives, by weights that do not depend on queues. So each part is simulated by itself, and no loop over all parts is
needed. Within a part, requests of one service stay in the order of their arrival, so a loop needs a step for a batch,
not for a request.

Inside, times are nanoseconds as float64. Whole nanoseconds up to 104 days are exact, so rounding never decides
whether a batch ends before a request arrives.
"""
