"""The command line: `orion`.

    main        the commands, and their errors as sentences
    agent       `orion agent`: run the node agent
    run         `orion run`: start a program under the hook
    policy      `orion policy`: show or change how a GPU is shared
    top         `orion top`: show the GPUs' clients, live
    stop        `orion stop`: end the agent
    doctor      `orion doctor`: find what prevents sharing on this machine
    demo        `orion demo`: compare sharing with and without Orion
    profile     `orion profile`: measure a workload's kernels
    cleanup     `orion cleanup`: remove what Orion left on a cluster

Below them: `agents` finds or starts the agent of a root, `launching` makes the environment of a client, `rates`
and `top_picture` are what `orion top` shows, `checks` looks at the machine, `other_agents` for agents of other roots,
`extras` says which packages a command misses. A command imports what it needs when it runs,
so that `orion --help` answers at once and `orion run` delays a program's start little.
"""
