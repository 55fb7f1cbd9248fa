"""The training state in memory that outlives whoever trains: a rank may be killed at any moment."""
