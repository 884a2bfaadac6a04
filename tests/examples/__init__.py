"""The examples that are shipped: planned against what every backend sells, and run where a CPU can."""
