"""An SSH key that nobody has, for providers that create no machine without one. Nobody logs in: the agent connects."""

# A point of the curve that was made from a text by hashing, so that its private half isn't known to anybody.
NOBODYS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9+h39KrbmMszcWZLksvT+bCvyU08pijMwmjaR8yAUX nobody"
