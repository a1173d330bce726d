"""The operations between the matrix products of a layer, fused for CPUs; plain PyTorch where no compiler is.

``functions.py`` has the operations and compiles their loops, ``cpu.cpp``, once per machine.
"""
