"""The apps' statuses as a file, in protobuf's JSON, which keeps all fields."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from themis.errors import InputError
from themis.wire import themis_pb2 as pb


def write_statuses(path: Path, statuses: Iterable[pb.AppStatus]) -> None:
    """Write statuses, in order."""
    content = [MessageToDict(status, preserving_proto_field_name=True) for status in statuses]
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_statuses(path: Path) -> tuple[pb.AppStatus, ...]:
    """The inverse of write_statuses. Raises InputError for an invalid file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return tuple(ParseDict(each, pb.AppStatus(), ignore_unknown_fields=True) for each in content)
    except OSError as error:
        raise InputError(f"cannot read {path}", value=error.strerror) from None
    except (ValueError, ParseError) as error:
        raise InputError(f"{path} holds no statuses of apps", value=str(error)) from None
