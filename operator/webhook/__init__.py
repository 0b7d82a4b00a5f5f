"""Admission: what a pod becomes before it exists, and what can never work is refused with a sentence.

decisions   what comes out: refused, unchanged or patched, and why
pods        the parts of a pod that admission reads
slots       which containers get how many slots, and of which kind
hazards     what would let a pod around its slots or the hook
preloading  the hook's place in LD_PRELOAD
defaults    what an installation decides
admitting   all of it in order: one pure function of pod, shares and GPUs
patching    the difference of two objects as a JSON patch

reviews     the API server's questions and our answers
cluster_facts  shares and GPUs as admission needs them
handling    from a question to an answer, with a second look at the live API before a refusal
metrics     what Prometheus learns
tls         the certificate, exchanged while serving
serving     HTTPS, health, metrics and a clean end
manifests   what the API server must know of all this: webhook configuration and admission policies
"""
