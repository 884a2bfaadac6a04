"""AWS in tests: an emulator in its own environment, and a scripted front for its faults."""
