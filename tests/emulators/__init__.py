"""What stands in for AWS in tests: an emulator in an environment of its own, and a scripted front for its faults."""
