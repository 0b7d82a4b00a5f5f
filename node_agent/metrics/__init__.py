"""What is served over HTTP: Prometheus metrics, and answers to the kubelet's probes."""
