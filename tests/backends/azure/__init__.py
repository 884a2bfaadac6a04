"""Azure: its fake, made from the models of its SDK, and the traps that its users have reported."""
