"""The reference engine: the OmniGraph commit protocol on Lance, small enough to read in an afternoon."""

import os

# Lance logs a warning for every table that is created; it reads this variable when it is first imported.
os.environ.setdefault("LANCE_LOG", "error")
