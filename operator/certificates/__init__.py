"""Creates and rotates the webhook's certificates where cert-manager does not manage them.

settings    names and times that the installation sets
issuing     creates and parses certificates
state       what the Secret holds: the leaf, and the current, coming and retired authorities
deciding    the next step, as a pure function of the state and of the observed cluster
bundles     the caBundles of the webhook configurations; the API server trusts the authorities in them
replicas    which certificate each replica of the webhook serves
cert_manager  whether cert-manager manages the certificates
rotating    the loop that observes the cluster and carries out the steps
metrics     Prometheus metrics
showing     the text of `orion certificates show`
api         the interface to the API server
connecting  a connection to the API server for a process that has none yet

An authority is a certificate authority (CA). The leaf is the webhook's server certificate.

A rotation orders its steps so that no TLS connection ever fails. First it creates a new authority and writes it
into every caBundle beside the current one. Then it waits until every API server has read the caBundles, and signs a new
leaf with the new authority. Once every replica serves the new leaf, it drops the old authority.

The whole state is one Secret, written with its resourceVersion. So a rotation can be killed at any point and another
process continues it. If two processes rotate at the same time, one of them gets a conflict and retries.
"""
