"""Two drivers on one graph: one is held inside a storage request, the other runs, and the first goes on.

pairs       which lanes meet, on which graph
orders      in which serial orders they can have happened, by the model
judge       whether what an engine shows is one of them
lineage     which commit is which call's, and who may have made the others
glimpse     what a reader may see while one lane is held
rest        what else must be true of a graph when both are done
gaps        races that the format leaves open, known by what the processes did
stage       the graph and the processes of a pair
schedule    one hold, run and judged
traces      a schedule as a value that can be run again
sweep       all of them
"""

from failpoints.pairs.pairs import PAIRS, Pair, UnknownPair, pairs_called
from failpoints.pairs.schedule import Hold, ScheduleResult
from failpoints.pairs.sweep import counts_of, replay_pair, sweep, table_of

__all__ = [
    "PAIRS",
    "Hold",
    "Pair",
    "ScheduleResult",
    "UnknownPair",
    "counts_of",
    "pairs_called",
    "replay_pair",
    "sweep",
    "table_of",
]
