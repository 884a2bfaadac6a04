"""The connection to a server: which server and project, HTTP and streams, and what its answers may contain."""
