"""Serves metrics and probes over HTTP for agent, device plugin, operator and webhook.

answers  the answers to a GET of /metrics, /healthz and /readyz
server   listens, and limits connections

The package uses aiohttp, and adds limits on connections, which no library has. Rejected: prometheus-client's own
server. It has no probes, and it keeps a thread for each connection until the peer closes the connection. Rejected: an
HTTP parser of our own (Orion had two).

aiohttp.web needs 10 MB of the 64 MB that a device plugin uses. The operator and an agent in a cluster load
aiohttp anyway.
"""
