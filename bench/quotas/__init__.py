"""`orion bench quotas`: do be slots get the GPU time that their requests and limits say, in each second?

scenario   what to measure: settings of two to five clients
runs       makes the runs: each client alone, then all of them together
shares     shares of sliding windows, from the ends of the clients' steps
report     the table of an output folder
"""
