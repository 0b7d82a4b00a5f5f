"""What parts of Orion cost, measured from a checkout; none of it is installed (see `bench` for what users measure).

    overhead     what the hook costs a program that is alone; `report` makes tables of the raw data
    cluster      what operator, webhook, device plugin and pods cost, and what an upgrade of the chart does
    probes       small programs that ask a GPU for the facts that the design rests on

Each is a script (`python -m measurements.overhead.hook_cost`). They compile C, start the testbed or read `examples/`:
in a wheel they could not run.
"""
