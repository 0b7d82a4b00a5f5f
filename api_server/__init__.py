"""The API server, for operator, webhook and node agent: who we are to it, requests, lists and watches.

credentials          finds the way to it: a kubeconfig, or the pod's own account
kubeconfigs          what kubeconfigs say, and what is wrong with them
credential_programs  runs the program that logs a user in, as kubeconfigs of clouds ask for
exec_credentials     what is said between us and such a program
access               where it is, and who we are, in every request of every session
requests             reading and writing, again where the server asks for patience; pages of a list, events of a watch
merging              the patch that makes one object of another
watching             objects of one kind, kept current in memory by list and watch
paths                where it has its lists of objects
metrics              what Prometheus learns of requests

aiohttp of our own rather than the `kubernetes` client: that one blocks, so each watch would hold a thread. kopf, which
watches for the reconciler, gets its session from here; its own request functions are private, and retry in ways of
their own. Why kubeconfigs and log-ins are ours, too: credentials and credential_programs.
"""
