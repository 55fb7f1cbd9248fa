"""In-memory checkpoints: training state in memory that outlives the rank, which may be killed at any moment."""
