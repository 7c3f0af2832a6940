"""The gate: a byte-transparent S3 reverse proxy between an engine process and its store.

It records every request, and rules can hold, refuse, cut, answer, delay or slow down any of them. So crashes, lost
acknowledgements and races can be made on any engine, in any language, with no line of code in it.
"""

from failpoints.gate.errors import GateBusy, GateError, GateTimeout, RuleError
from failpoints.gate.exchange import OUTCOMES, WRITE_VERBS, Exchange
from failpoints.gate.gate import Gate, Port
from failpoints.gate.ledger import Armed
from failpoints.gate.roles import DURABLE_VERBS, ROLES, VERBS, role_of
from failpoints.gate.rules import ACTIONS, Rule
from failpoints.gate.trace import incomplete_uploads, print_trace, table_of

__all__ = [
    "ACTIONS",
    "DURABLE_VERBS",
    "OUTCOMES",
    "ROLES",
    "VERBS",
    "WRITE_VERBS",
    "Armed",
    "Exchange",
    "Gate",
    "GateBusy",
    "GateError",
    "GateTimeout",
    "Port",
    "Rule",
    "RuleError",
    "incomplete_uploads",
    "print_trace",
    "role_of",
    "table_of",
]
