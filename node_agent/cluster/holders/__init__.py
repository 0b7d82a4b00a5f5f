"""Finds out who holds each slot, from the kubelet and the API server, and writes the grants into the slots' pages."""
