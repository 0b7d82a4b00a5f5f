"""The reconciler: decides what `GPUShare` objects grant to pods, and reports the result in the shares' status.

`records` and `state` hold the watched objects. `governance`, `grants`, `share_status` and `decisions`
are pure functions that compute writes from that state. `controller` carries the writes out, one object at a time.
`serving` runs all of it with kopf.

The reconciler is level-triggered: a decision depends only on the current state, not on the last event. So the
decision is the same after a restart, for every order of events, and if two reconcilers run by mistake.
"""
