"""Decides who runs where and with how much: pure functions from values to values.

These functions read no file, no clock, no network and no random number. They write no log and keep no state between two
calls. So a plan that `orion simulate` tries on a laptop is the plan that the cluster gets: both call these functions.
The packages import the standard library, numpy and highspy. They import no other package of Orion.

queues   training jobs that wait for GPUs: order, resources, placement, round by round
sharing  how fast a best-effort job runs beneath a high-priority tenant

Refused: a class that keeps state between calls, because decisions would differ after a restart; and a planner whose
result depends on the order of a dict.
"""
