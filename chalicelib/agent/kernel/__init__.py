"""What every room stands on: tasks on disk, processes and namespaces, the connection to the server."""
