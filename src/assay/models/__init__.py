"""Methods for people who own checkpoints of neural networks."""
