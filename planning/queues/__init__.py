"""Training jobs that wait for GPUs: who runs in the next round, where, with how many CPUs and how much memory.

resources    what servers have, and which part of it a job takes
demands      what a job asks for: its fair share, or what it can use (Synergy, OSDI 2022)
fit          where a demand fits
order        policies: who comes first
placement    mechanisms fair, greedy and tune from an empty cluster
continuing   the same mechanisms for a cluster whose running jobs keep their GPUs
holdings     what jobs hold while `continuing` decides a round
optimal      mechanism opt: an integer program gives each job its CPUs and memory
compatible   what the published simulator does differently, so that its results can be reproduced
"""
