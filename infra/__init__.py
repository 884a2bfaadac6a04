"""What stands behind the functions in AWS: templates made from the code's own tables, never written twice."""
