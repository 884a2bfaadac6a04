"""The AWS resources behind the functions: templates generated from the code's tables, so nothing is written twice."""
