"""Measures what parts of Orion cost. For developers with a checkout; users measure with `orion bench`.

    overhead     what the hook costs a program that has the GPU to itself; `report` makes tables of the raw data
    cluster      what operator, webhook, device plugin, claims and pods cost, and how an upgrade affects pods
    memory       what a memory limit costs, and what programs see of a GPU of that size
    suites       whether test suites of other projects end alike without the hook, as hp and as be
    probes       small programs that measure the GPU's properties on which the design depends

Run each program as a module, such as `python -m measurements.overhead.hook_cost`. The package is not installed, because
its programs compile C, start the testbed or read `examples/`.
"""
