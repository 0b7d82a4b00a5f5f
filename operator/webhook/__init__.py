"""The admission webhook: patches pods that use Orion before they are created, and rejects pods that cannot work.

Pure functions:
decisions   the result: rejected, unchanged or patched, and why
pods        the parts of a pod that admission reads
slots       which containers get how many slots, and of which kind
hazards     rejects pods that could use a GPU without slots or without the hook
preloading  puts the hook first in LD_PRELOAD
defaults    settings of the installation
admitting   the whole decision, as a function of the pod, the shares and the GPUs
patching    the difference of two objects as a JSON patch
placement   keeps pods that need several GPUs away from nodes with fewer
names       an admission policy that warns of annotations without effect
ceilings    admission policies that keep shares and pods under the ceilings of their Namespace
ceiling_fields  the fields that have a ceiling

Modules with input and output:
reviews     the formats of AdmissionReview
cluster_facts  the facts about shares and GPUs that admission needs
handling    answers a review, and reads the live API before it rejects
metrics     Prometheus metrics
bounds      how many connections and bytes each peer, and all together, may use
turns       gives peers turns on the event loop
connections accepts connections, with TLS handshakes in turn
bodies      reads the bodies of reviews within bounds
tls         the certificate, replaced while the server runs
serving     HTTPS, probes, metrics and the shutdown
manifests   the webhook configuration and the admission policies
"""
