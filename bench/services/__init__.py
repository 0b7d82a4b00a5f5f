"""`orion bench services`: services that share one GPU, and a small LLM engine, measured for the serving simulator.

scenario     the file that says what to measure
controller   reads the scenario, starts processes, makes the runs that are missing, prints a line for each
processes    the worker processes by mode and share; they live as long as the command
profile      latency by batch and share, and closed loops of two services side by side
pairs        two services at a rate, in each way of sharing the GPU
engines      the engine's constants, and its requests at three loads
worker       the process that executes commands
serving      the server's rule: when a batch begins, and which
engine       the engine's rule: who is admitted, which tokens an iteration processes
models       the services as CUDA graphs, one for each size of a batch
decoder      the engine's decoder, as CUDA graphs by tokens of prompts and by sequences
fake         replacements that only wait; for tests
measured     reads an output, and works out the constants of the GPU
predicting   the scenarios of the serving simulator for measured runs
comparing    predictions beside what was measured
report       the page
"""
