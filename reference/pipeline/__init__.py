"""The engine's operations at scale, on Spark: load, export, diff, audit, generate, history.

The same code runs on a laptop (`local[*]`) and on a cluster. Rows stay in Arrow and in Python: tasks read files and
tables themselves, and what crosses between them are key columns in blocks. The driver pins one snapshot for a whole
job, and commits as any other writer does, under one sidecar and with one publish.

pyspark is an optional extra: importing this package needs nothing of it, running anything in it does.
"""
