"""Finds out who holds each slot, from the kubelet and the operator, and writes the grants into the slots' pages."""
