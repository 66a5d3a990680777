"""The table of events in docs/reference/events.md holds every kind and its emitter, and the code emits no other."""

import ast

from documents import ROOT, code, table_rows

from themis.events import EMITTERS, Emitter
from themis.leases import LeaseChangeKind


def emitted(folder, name):
    """First arguments of calls of this method that are plain text."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def test_the_table_is_that_of_the_code():
    rows = {code(row[0])[0]: row[1].strip() for row in table_rows("docs/reference/events.md", "kind")}
    assert rows == {kind: emitter.value for kind, emitter in EMITTERS.items()}


def test_the_resource_manager_records_only_its_own_kinds():
    own = {kind for kind, emitter in EMITTERS.items() if emitter is Emitter.RESOURCE_MANAGER}
    recorded = {
        *emitted("rm_plugin/service", "record"),
        *emitted("rm_plugin/service", "event"),
        *emitted("rm_plugin/service", "_record"),
        *LeaseChangeKind,
    }
    assert recorded <= own
    assert own - recorded == {"unreadable"}


def test_app_masters_emit_only_their_own_kinds():
    own = {kind for kind, emitter in EMITTERS.items() if emitter is Emitter.APP_MASTER}
    assert {*emitted("am", "_emit"), *emitted("am", "_tell_once")} <= own
    # `_tell_once` names its kinds after the job.
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "am").rglob("*.py"))
    assert [kind for kind in own if f'"{kind}"' not in source] == []
