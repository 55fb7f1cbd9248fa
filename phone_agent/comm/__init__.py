"""Collective communication: allreduce over MPI point-to-point, wire formats, gradient compression, autotuning."""
