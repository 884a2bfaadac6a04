"""The base of the other rooms: tasks on disk, processes and namespaces, the connection to the server."""
