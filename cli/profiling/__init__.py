"""The parts of `orion profile`.

running         starts the program so that the driver loads the profiler in it and in its children
collected       reads the profiler's output and merges the processes
occupancy       computes how many blocks of a kernel fit on one SM
names           demangles and shortens kernel names
building        makes a GPUProfile from the profiler's output
counters        runs the program again under Nsight Compute, to read hardware counters
nsight_compute  reads classes of kernels from a report of Nsight Compute
orion_csv       reads and writes the profile files of the Orion paper (EuroSys'24)
units           units of durations in those files
loading         reads a profile from a file and gives it to a running agent
table           shows a profile as a table
"""
