"""`python -m themis_cli`: the `themis` command if its script is not on the path."""

import sys

from themis_cli.main import main

sys.exit(main())
