"""Storms: random sequences of operations, in bad weather between the engine and its store.

    weather    the faults of one step, drawn from a seed: bursts of 503, lost acknowledgements, cuts, delays, kills
    player     performs the steps of `conformance.sequences` under them, with the same judges after each
    storm      a whole storm from a seed, cut down to its shortest failing part, as a trace

Whatever the weather, an engine owes this: what it acknowledged is there, what it refused is not, what it left open has
happened whole or not at all, and when the weather is good again the graph can be read and written.
"""
