"""Launchers: start the processes of pre-training on this machine, on several, or through a queue.

A launcher decides where training runs and never what is learned: like the machine's settings, these files are no
dependency of a stage.
"""
