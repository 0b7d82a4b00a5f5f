"""Creates and renews the webhook's certificates where cert-manager does not manage them.

settings    names and times that the installation sets
issuing     creates and parses certificates
state       what the Secret holds: the leaf, its authority, and retired authorities
deciding    the next step, as pure functions of the state and of the observed cluster
bundles     the caBundle of the webhook configuration; the API server trusts the authorities in it
rotating    the loop that observes the cluster and carries out the steps
metrics     Prometheus metrics
showing     the text of `orion certificates show`
api         the interface to the API server
connecting  a connection to the API server for a process that has none yet

An authority is a certificate authority (CA). The leaf is the webhook's server certificate.

The authority is made once and lasts ten years; only leaves are renewed. An authority that is lost, ends soon or may
have leaked is replaced in an order in which no TLS connection fails. The new authority is written into the caBundle,
and signs a leaf after every API server has read it. The old one stays trusted for a day after that. By then every
replica has loaded the new leaf.

The whole state is one Secret, written with its resourceVersion. So a process can be killed at any point and another one
continues. If two processes write at the same time, one of them gets a conflict and reads again.

Rejected: asking each replica which leaf it serves, before the old authority is dropped. That needs the addresses of the
replicas, a way through network policies, and one more state. A trusted authority without a key costs nothing for a day.
"""
