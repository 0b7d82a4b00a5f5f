"""How a program introduces itself to the kubelet (v1)."""
