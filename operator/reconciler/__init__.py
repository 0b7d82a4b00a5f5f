"""The reconciler: what `GPUShare` objects say becomes true of pods, and what is true becomes their status.

`records` and `state` hold what is watched; `governance`, `grants`, `share_status`, `node_labels` and `decisions` are
pure: from that state they decide writes. `controller` carries them out, one object at a time; `serving` puts kopf
around it. Level-triggered throughout: a decision looks at the state as it is, never at what has just happened, so it is
the same after a restart, in any order of events, and when two reconcilers run by mistake.
"""
