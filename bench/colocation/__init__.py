"""A latency-critical process (hp) beside best-effort ones (be) on one GPU, under every system that is to be compared.

Where to look, from what a person writes to what a person reads:

    scenario, systems       the YAML file: workloads, arrivals, and the systems to compare
    names, plan             every run of a scenario, in its order, with the file that it fills
    schedule                when requests arrive
    gpus, shared_gpu, mps   the GPUs, each in its modes: environments of clients, private MPS daemon, private agents
    posts, roster           which worker processes a run needs; started once, kept while needed
    runner                  one GPU's runs
    host, phase_lock        nothing starts or ends on any GPU while one measures; a record of what happened when
    results                 the output folder, written so that a cut-off measurement goes on where it stopped
    progress, measure       `orion bench colocation`: all of the above, spread over GPUs, with a bar
    report, hiccups         `orion bench report`: tables and plots from an output folder; requests far out

A run that fails is a file with a sentence in it; the others go on.
"""
