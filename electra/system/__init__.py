"""Hardware, memory, processes and signals, peers of a distributed run, executors of text work."""
