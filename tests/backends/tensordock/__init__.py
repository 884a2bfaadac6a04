"""TensorDock."""
