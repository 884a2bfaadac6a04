"""Users' own hosts: logging in over SSH, inspecting them, setting them up and clearing them again."""
