"""From a graph to steps of the core: fused, with every tensor's place in memory known before anything runs.

graph -> fuse (network) -> forward, backward (steps on buffers) -> arena (places) -> emit (the core's structs)
"""
