"""`orion loadgen`: sends requests to an HTTP server at times that are fixed before the run, and measures the latencies.

The load is an open loop: the next request does not wait for an answer, and a latency counts from the time at which the
request was due. So a server that stands still delays every request that was due meanwhile, and the percentiles show
it. wrk, ab and other closed loops were rejected: they send nothing while the server stands still.

schedule    when requests are due: a rate, a file of rates, a trace
requests    what is sent: method, headers, body; requests to language models
events      server-sent events, and the tokens of OpenAI-style streams
recording   the times of each request; the log
sending     sends the requests with aiohttp
histogram   the HdrHistogram log
report      the figures of a run

One process sends everything with one session: 1,000 requests a second need about a fifth of a core. Processes that
share the load were rejected: their clocks and logs would have to be joined, for rates that one core reaches.
"""
