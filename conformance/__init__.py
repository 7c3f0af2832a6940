"""The conformance kit: says what an OmniGraph storage engine must do, and finds out whether one does it."""

import os

# Lance reads this once, when it is first imported: it would tell a terminal about every dataset that it creates.
os.environ.setdefault("LANCE_LOG", "error")
