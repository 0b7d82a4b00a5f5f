"""Measures what parts of Orion cost, from a checkout. It is not installed; users measure with `bench`.

    overhead     what the hook costs a program that has the GPU to itself; `report` makes tables of the raw data
    cluster      what operator, webhook, device plugin and pods cost, and what an upgrade of the chart does
    probes       small programs that measure the GPU's properties on which the design depends

Each is a script (`python -m measurements.overhead.hook_cost`). The scripts compile C, start the testbed or read
`examples/`, so they need a checkout.
"""
