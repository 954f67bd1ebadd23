"""``python -m edgeplace``."""

import sys

from edgeplace.cli import main

sys.exit(main())
