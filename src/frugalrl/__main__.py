"""`python -m frugalrl`."""

import sys

from frugalrl.cli import main

sys.exit(main())
