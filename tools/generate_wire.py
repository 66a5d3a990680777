"""Generate the wire code from themis/wire/themis.proto, into the package or into another folder (`--into`)."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

PACKAGE = Path(__file__).resolve().parent.parent / "themis" / "wire"


def generate(into: Path) -> int:
    """Write themis_pb2.py, its stub and themis_pb2_grpc.py into a folder; return protoc's exit status."""
    include = str(resources.files("grpc_tools") / "_proto")
    status = protoc.main(
        [
            "protoc",
            f"-I{PACKAGE}",
            f"-I{include}",
            f"--python_out={into}",
            f"--pyi_out={into}",
            f"--grpc_python_out={into}",
            "themis.proto",
        ]
    )
    stub = into / "themis_pb2_grpc.py"
    # protoc writes a top-level import; the module lives in a package.
    stub.write_text(
        re.sub(r"^import themis_pb2 as", "from themis.wire import themis_pb2 as", stub.read_text(), flags=re.M)
    )
    return int(status)


def main() -> int:
    """Parse the command line and generate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=PACKAGE)
    return generate(parser.parse_args().into)


if __name__ == "__main__":
    sys.exit(main())
