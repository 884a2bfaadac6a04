"""The JSON that clients rely on, one noun per file. Only this package knows the wire's names, dates and nulls."""
