"""SSH into a job: its server, who may log in, and what a session becomes."""
