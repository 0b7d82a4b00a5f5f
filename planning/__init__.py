"""Decides who runs where, and with which resources: pure functions from values to values.

These functions read no file, no clock, no network and no random number. They write no log and keep no state between two
calls. So a component of a cluster that calls these functions gets the plan that `orion simulate` tried out on a laptop.
The packages import the standard library, numpy and highspy. They import no other package of Orion.

queues   training jobs that wait for GPUs: order, resources, placement, round by round
sharing  how fast a best-effort job runs beneath a high-priority tenant
serving  services that answer requests: which GPU, share and batch each of them gets
fleet    one plan for services, batches and training

Refused: a class that keeps state between calls, because decisions would differ after a restart; and a planner whose
result depends on the order of a dict.
"""
