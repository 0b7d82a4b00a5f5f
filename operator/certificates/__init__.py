"""The webhook's certificates, where no cert-manager looks after them: made, spread, exchanged and dropped in order.

settings    names and times, as the installation sets them
issuing     making and reading certificates
state       what the Secret holds: the leaf, and the authorities of now, of next and of before
deciding    the next step: one pure function of the state and of what was seen
bundles     the caBundles through which the API server trusts the authorities
replicas    which certificate each replica of the webhook shows
cert_manager  whether others look after the certificates
rotating    all of it, again and again, against the API server
metrics     what Prometheus learns
showing     what a person reads of it
api         what is asked of the API server
connecting  the way to the API server, where no reconciler has one already

The order in which nothing is ever refused: a new authority is made; every caBundle holds it beside the present one;
time passes until every API server has seen that; only then is a leaf signed by it; when every replica shows that leaf,
the authority of before is dropped. The state is one Secret, written under its resourceVersion, so a rotation may be
killed anywhere and taken up by another process, and two at the same time get in each other's way at most.
"""
