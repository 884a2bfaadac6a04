"""Lambda Cloud. Its type is `lambda`, which no package can be called."""
