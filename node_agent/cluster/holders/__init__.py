"""Who holds each slot, by the kubelet and the API server, and what their grants bring to the pages."""
