"""The cut sweep: a writer is killed at every durable request that it makes, and what it leaves is judged.

    cut       where a writer is stopped: before a request, after it was applied, before or after the acknowledgement
    cell      one cut: put the baseline back, run, kill, recover, judge
    sweep     all cells of a writer, and of several writers in several processes
    show      lines and tables for people
    traces    a failing cell as a file, and the way back

Black box: nothing of the engine is touched, only the requests between it and the store.
"""
