"""Users, members, keys and access tokens, as the API answers them."""

from __future__ import annotations

ANN = {"id": "1", "username": "ann", "created_at": "2026-11-21T04:00:00Z", "global_role": "user", "email": None} | {
    "active": True,
    "ssh_public_key": "ssh-ed25519 AAAA\n",
}
BOB = {**ANN, "username": "bob", "global_role": "admin", "active": False, "email": "robert.from.the.lab@example.com"}
MEMBERS = [{"user": ANN, "project_role": "manager"}, {"user": BOB, "project_role": "user"}]
TOKENS = [
    {"id": "6fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b70", "created_at": "2026-11-21T04:00:00Z", "name": "ci"}
    | {"expires_at": "2026-12-21T04:00:00Z", "verbs": ["read", "run"], "projects": ["research", "training"]},
    {"id": "7fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b71", "created_at": "2026-11-20T04:00:00Z", "name": "dashboard"}
    | {"expires_at": "2027-11-20T04:00:00Z", "verbs": ["read"], "projects": []},
]
SCIM_TOKENS = [
    {"id": "6fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b72", "created_at": "2026-11-21T04:00:00Z", "name": "okta"}
    | {"created_by": "ann"},
]
KEYS = [
    {"id": "4fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b70", "added_at": "2026-11-21T04:00:00Z", "name": "ann@laptop"}
    | {"type": "ssh-ed25519", "fingerprint": "SHA256:Eh1Ip0zc9iKXVZTtZTPbp7RYQidTo7BViPXgyerDp0k"},
    {"id": "5fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b71", "added_at": "2026-11-20T04:00:00Z", "name": "yubikey"}
    | {"type": "sk-ssh-ed25519@openssh.com", "fingerprint": "SHA256:qgZgdWVvznfvvAhNUkp0g3XjdSY0h7QO4mShyW1Y/vc"},
]
