"""Pre-training methods: a file each, imported by name, over what they share (base.py).

Read electra.py first: the method of the paper from masked inputs to both losses. The others say how they differ.
"""
