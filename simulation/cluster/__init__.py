"""Training jobs on a cluster, round by round, as `orion simulate cluster` does.

jobs         what arrives, and what each job asks for on this cluster
generate     makes jobs as Synergy's generator does
replay       makes jobs from a trace
clusters     reads clusters: YAML, with high-priority load
synergy_ini  reads clusters: Synergy's .ini
profiles     reads how models train by CPUs and memory
fitting      finds jobs that are too large
schedulers   names such as SRTF+tune
rules        the settings of a run, such as the length of a round
ledger       the progress of each job
deciding     asks `planning` for the decision of each round
loop         simulates the rounds of one run
results      rows and figures of one run
runs         many runs in several processes; continues after an interruption
pictures     draws completion times, their mean against the load, and queue and use over time
report       makes the HTML page
"""
