"""Print the documents of runs as JSON, or as tables for readers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from themis_lab.simulator.compare import sweep_document
from themis_lab.simulator.metrics import Document


def show(documents: Sequence[Document], *, as_json: bool) -> None:
    """Print the document of one run, or several side by side with their spread over seeds."""
    if as_json:
        content = documents[0] if len(documents) == 1 else sweep_document(documents)
        sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
        return
    from themis_cli.simulate_table import print_tables

    print_tables(documents)
