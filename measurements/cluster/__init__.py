"""Measures Orion's parts on a cluster: the operator, the webhook, the device plugin, pods, an upgrade of the chart."""
