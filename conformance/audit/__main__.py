"""`python -m conformance.audit`."""

import sys

from conformance.audit.cli import main

sys.exit(main())
