"""`make deploy` on an emulator of AWS, and what it deployed at work. No handler is imported here: the emulator runs the
zips."""
