"""The agent's process and the tasks' supervisors: the loop, messages to the server, the machine's facts and health."""
