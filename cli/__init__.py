"""The command line: `orion`.

`main` is the entry point, and ends quietly on Ctrl-C. `commands` lists the commands and prints each error as one
sentence. Most commands are in the module of their name; `orion mps-daemon` and `orion device-plugin` are in
`mps_daemon` and `device_plugin`. The other modules:

    agents, other_agents        the agent of a root, which is the agent's folder; agents of other roots on this machine
    launching, slot_choice      the environment of a client; the choice of a client's slots
    checks                      the checks of `orion doctor`
    rates, top_picture          the figures and the picture of `orion top`
    slot_table                  the table of slots in `orion top` and `orion explain slot`
    explain_slot                `orion explain slot`
    profiling, simulating       the parts of `orion profile` and of `orion simulate`
    pod_sources                 where `orion explain pod` finds pods and shares
    policy_options, sizes       options for policies; amounts of memory
    roots, snapshots            the agent's folder; its answers as JSON
    errors, extras              errors of commands; packages that a command lacks

A command imports what it needs when it runs. So `orion --help` answers at once, and `orion run` hardly delays a
program's start.
"""
