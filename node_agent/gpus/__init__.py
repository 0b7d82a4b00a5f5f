"""The GPUs of this machine: one interface, one file for each way to find them, and whether they are well.

interface    what is asked of GPUs, whatever they are
factory      which of nvml, simulated and none finds them
remembering  those found last, for a start at which the driver does not answer
keeper       looks after their health; hysteresis: when a verdict changes
usage        how much of their memory is in use
asking       the threads that may wait for a driver
"""
