"""`python -m orion.cli`: the same as `orion`, where the command is not on the path."""

import sys

from orion.cli.main import main

sys.exit(main())
