"""Launchers: start the processes of pre-training on this machine, on several machines, or through a queue.

A launcher decides where training runs and never affects the weights: like the machine's settings, these files are not
dependencies of a stage.
"""
