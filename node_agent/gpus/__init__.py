"""The GPUs of this machine: one interface, one file for each way to find them, and their health.

interface    what the agent needs of any GPU
factory      chooses nvml, simulated or none
remembering  keeps the list of GPUs for a start without the driver
keeper       checks the GPUs' health; hysteresis: when a verdict changes
usage        how much of their memory is in use
asking       threads for calls into a driver
"""
