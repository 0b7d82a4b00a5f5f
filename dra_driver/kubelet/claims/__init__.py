"""What the kubelet asks a DRA driver: to prepare and unprepare claims (v1)."""
