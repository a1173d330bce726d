"""The machine and the processes on it: hardware, memory, signals, executors; estimates; launchers."""
