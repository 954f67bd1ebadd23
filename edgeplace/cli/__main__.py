"""``python -m edgeplace.cli``."""

import sys

from edgeplace.cli import main

sys.exit(main())
