"""What a cluster's part of Orion costs: the operator, the webhook, the device plugin, pods, an upgrade of the chart."""
