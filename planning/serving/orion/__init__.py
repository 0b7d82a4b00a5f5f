"""The default planner of services: as few GPUs as hold every objective, shared in the way that suits each of them.

services    what it decides from: services with profiles, types of GPU, best-effort work
costs       what sharing costs on a GPU, where slowdowns of pairs are not measured
prediction  how many requests miss their objective on a part
batches     the largest batch of each service on a part
capacities  what services can do on a part alone and in pairs
tables      those figures for one list of services and all parts that GPUs can have
partitions  how a GPU can be cut
filling     services put into parts, up to one level of load
checking    a filled layout against the prediction
searching   the search over numbers of GPUs, cuts and levels
comparing   all ways to share one GPU, by the shortest latency
moving      from a running plan to the next one
beneath     best-effort work below the services
reasons     sentences
choosing    the plan itself
cases       the planner for cases (orion simulate serving --cases)
"""
