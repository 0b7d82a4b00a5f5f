"""The client of the Kubernetes API server for operator, webhook and node agent: authentication, requests, watches.

credentials          finds the API server: from a kubeconfig, or from the pod's service account
impersonation        as whom the user of a kubeconfig acts
kubeconfigs          reads kubeconfigs and reports their errors
credential_programs  runs a credential plugin, as the kubeconfigs of clouds require
exec_credentials     the data that this package and a credential plugin exchange
access               adds the URL, TLS and the credentials to each session
requests             sends requests, with retries; reads the pages of a list and the events of a watch
merging              computes the patch between two objects
watching             keeps the objects of one kind current in memory, by list and watch
paths                URL paths of lists of objects
metrics              counts requests for Prometheus

The package uses aiohttp instead of the `kubernetes` client, which blocks: each watch would need a thread. kopf, which
watches for the reconciler, gets its session from this package. kopf's own request functions are private and retry in
another way. The docstrings of credentials and credential_programs say why this package reads kubeconfigs and runs
plugins itself.
"""
