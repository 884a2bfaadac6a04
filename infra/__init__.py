"""The AWS resources behind the functions. Templates are generated from tables in the code, so nothing is declared
twice."""
