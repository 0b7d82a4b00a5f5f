"""One plan over all workloads: services, batches and training on as few GPUs as hold them.

fleets     what a fleet asks for, and what a plan answers
waiting    how long requests wait on one GPU (M/G/1), and the highest rate that holds an objective
beneath    which services let best-effort work run beneath them
layout     services onto GPUs, span by span
supply     what the services leave for best-effort work on each GPU
gaps       free time of GPUs while jobs are placed one after the other
jobs       training and batches into the free time
separate   GPUs if each workload has GPUs of its own
search     the fewest GPUs, or the ends of jobs on given GPUs
reasons    why something does not fit, and the smallest change that helps

All times are hours from the plan's begin, unless a name says `_s`. Refused: an integer program over jobs, GPUs and
hours. It needs a variable for each of them, its relaxation moves each job in each hour, and the search over orders
reaches the fluid bound or the next number of GPUs in the fleets that we tried.
"""
