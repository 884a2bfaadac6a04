"""What every decision is made of: snapshots, plans, moves along the tables, effects on machines, workflows, and the
rules that any plan keeps.
"""
