"""Serves metrics and probes over HTTP for agent, device plugin, operator and webhook.

answers  the answers to a GET of /metrics, /healthz and /readyz
server   listens, and limits connections

The package uses aiohttp, and adds limits on connections, which no library has. Rejected: prometheus-client's own
server, because it has no probes, and a thread serves each connection until the peer closes it; and an HTTP parser of
our own (Orion had two). aiohttp.web needs 10 MB of a device plugin's 64 MB. The operator and an agent in a cluster load
aiohttp anyway.
"""
