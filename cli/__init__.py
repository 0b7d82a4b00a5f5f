"""The command line: `orion`.

    main        the commands, and how every failure is said in one sentence
    agent       `orion agent`: run the node agent
    run         `orion run`: start a program under the hook
    policy      `orion policy`: how a GPU is shared, to be read and changed
    top         `orion top`: who is on the GPUs, live
    doctor      `orion doctor`: what on this machine would keep sharing from working
    demo        `orion demo`: see it work
    profile     `orion profile`: what a workload's kernels are like
    cleanup     `orion cleanup`: what Orion left on a cluster, taken away

Below them: `agents` finds or starts the agent of a root, `launching` makes the environment of a client, `snapshots`
turns what the agent tells into rows, `checks` looks at the machine. A command imports what it needs when it is called,
so that `orion --help` answers at once and `orion run` costs a program's start little.
"""
