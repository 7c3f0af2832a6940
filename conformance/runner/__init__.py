"""The runner: `touchstone run`, on pytest.

profiles   how much a run does
known      the list of known failures
plugin     pytest's side: options, fixtures of the suites, what each test proved and broke
records    what happened to each test, as plain values
verdict    from records to one verdict per requirement, and one for the run
progress   what is shown while it runs
stores     several stores in one run, for people
junit      the JUnit files of several stores as one
session    a whole run: check, test, judge, report
"""
