"""What an operation costs, counted: requests at the gate, and the requests that Lance says it made."""

from cost_budgets.counters.lance_metrics import LanceCounts, lance_counts
from cost_budgets.counters.tally import MEASURES, Tally, hops_of

__all__ = ["MEASURES", "LanceCounts", "Tally", "hops_of", "lance_counts"]
