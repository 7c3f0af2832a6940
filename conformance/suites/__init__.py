"""The suites: what an engine must do, as tests on the engine under test, one file per group of requirements.

A test names its requirements with a marker, gets its engine, graphs and store from the fixtures of the runner, and
shows each requirement in a step of its own (`proving`). What it does through a judged graph is compared with the model,
and the auditor reads what is left on disk when it is over.
"""
