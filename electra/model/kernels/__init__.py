"""The operations between the matrix products of a layer, fused for CPUs; plain PyTorch where no compiler is.

:mod:`electra.model.kernels.functions` has the operations, ``cpu.cpp`` their loops, :mod:`electra.model.kernels.build`
compiles them once per machine.
"""
