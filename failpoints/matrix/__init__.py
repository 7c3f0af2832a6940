"""The crash matrix: every writer, stopped at every named failpoint, and judged by what recovery makes of it.

    with Crew("cmd:./my-driver", store.env, store.fresh_root) as crew:
        results = list(sweep(crew))
    print(matrix(results))

For any engine that declares the capability `failpoints`, on any store. A spot is a writer, a name and an action: the
process is killed there, or fails there and is judged or goes on, or stands still there while another process looks.
"""

from __future__ import annotations

from failpoints.matrix.crew import Crew
from failpoints.matrix.spots import ACTIONS, ERROR, GO_ON, KILL, PAUSE, Action, Spot, SpotResult
from failpoints.matrix.subjects import SUBJECTS, Subject, UnknownSubject, subjects_called
from failpoints.matrix.sweep import RENDEZVOUS, sweep, try_spots
from failpoints.matrix.table import matrix

__all__ = [
    "ACTIONS",
    "ERROR",
    "GO_ON",
    "KILL",
    "PAUSE",
    "RENDEZVOUS",
    "SUBJECTS",
    "Action",
    "Crew",
    "Spot",
    "SpotResult",
    "Subject",
    "UnknownSubject",
    "matrix",
    "subjects_called",
    "sweep",
    "try_spots",
]
