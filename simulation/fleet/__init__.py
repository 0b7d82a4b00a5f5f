"""A fleet from its file, and what its services will feel.

files     reads FLEET.yaml
changes   `--what-if`: one value of the file changed
feel      latencies and misses of each service under a plan
answer    the plan as JSON, and as a sentence
pictures  who runs where over a day, and the use of GPUs over time
"""
