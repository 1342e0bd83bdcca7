"""The decoder: what a model folder says, its weights, and the forward pass."""
