"""`orion bench memory`: do slots keep their memory limits, and do be tenants leave and come back in time?

scenario   what to measure: settings of several kinds
runs       makes the run of each setting that the output folder lacks
stage      a GPU of a chosen size under a private agent, and its tenants
changes, growth, beside, density, limit, moving, need, agent_cost, credit   one kind of setting each: run and figures
report     the table of an output folder

Processes of tenants:
tenant     the worker process
gpu        memory and kernels by the CUDA driver, on a real or simulated GPU
trainer    a deterministic trainer that holds memory, without torch or with it (torch_trainer)
server     an hp server whose cache can grow
churner    threads that allocate and free at random
"""
