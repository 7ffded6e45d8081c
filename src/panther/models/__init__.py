"""What predicts: tasks with their losses, scaling, heads, probes, the trainer, and the file of a trained model."""
