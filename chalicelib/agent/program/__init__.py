"""The agent's process and the supervisors that it starts: the loop, what is sent to the server, the machine's facts."""
