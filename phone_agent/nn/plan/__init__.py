"""Planner: compiles a graph into a list of core ops, with the address of every tensor fixed before anything runs.

graph -> fuse (lowered graph) -> schedule (forward and backward ops) -> arena (addresses) -> emit (core structs)
"""
