"""How a DRA driver reports the health of its devices to the kubelet."""
