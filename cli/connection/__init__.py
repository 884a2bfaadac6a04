"""The connection to a server: its configuration, HTTP and streams, and checks of what it sends."""
