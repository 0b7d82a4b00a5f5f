"""Metrics and probes over HTTP, the same for agent, device plugin, operator and webhook.

answers  what a GET of /metrics, /healthz and /readyz gets
server   listens, and bounds what one peer can take

The HTTP is aiohttp's. Refused: prometheus-client's own server, which gives each connection a thread for as long as its
peer likes and knows no probes; a parser of our own, of which there were two. aiohttp.web takes 10 MB of a device
plugin's 64 MB; an agent in a cluster and the operator load aiohttp anyway. What no library has is ours: the bounds on
connections.
"""
