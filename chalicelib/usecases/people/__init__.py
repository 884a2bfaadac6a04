"""Users and projects: who they are, how they sign on, what they may do, and the secrets and quotas of projects."""
