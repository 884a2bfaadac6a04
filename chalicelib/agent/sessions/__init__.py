"""SSH into a job: its server, the keys that may log in, and the sessions."""
