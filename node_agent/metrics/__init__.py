"""The agent's HTTP pages: Prometheus metrics, and the kubelet's probes."""
