"""Random sequences: every operation, on several branches and through several handles, judged after each step.

    vocabulary   the schema, names and values that sequences are made of, hostile ones among them
    player       performs one step, a plain dictionary, on a judged graph
    machine      a Hypothesis state machine that makes up steps
    shrinking    the shortest part of a failing sequence that still fails
    story        a sequence in words

A step is a plain dictionary that means the same on every engine, so that a failing sequence is a trace that can be sent
around, and replayed.
"""
