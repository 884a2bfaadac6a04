"""What is done to the outside world after its intent is committed: one file per family of effects."""
