"""The JSON that clients rely on, one noun a file. Names, dates and null rules are the wire's: nothing else knows."""
