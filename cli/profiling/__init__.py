"""What `orion profile` is made of.

running         starts the program so that the driver loads the profiler in it and its children
collected       what the profiler left in its folder, processes merged
occupancy       how many blocks of a kernel one SM holds
names           mangled and demangled names
building        from what was collected to a GPUProfile
counters        a second run under Nsight Compute, where hardware counters may be read
nsight_compute  classes of kernels, from a report of Nsight Compute's
orion_csv       Orion's profile files, read and written
units           what durations of those files are in
loading         a profile's file, read and given to a running agent
table           a profile as a table for people
"""
