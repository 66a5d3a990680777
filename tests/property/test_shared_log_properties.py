"""The shared log under random faults: writers that stand still, lost answers, starts and snapshots in any order."""

import json

from hypothesis import given
from hypothesis import strategies as st
from shared_folder_cases import MemoryFolder

from rm_plugin.service.shared_log import LogLostError, SharedLog
from rm_plugin.service.store import StoreError
from themis.errors import UnreachableError


class LossyFolder(MemoryFolder):
    """Loses the answer of the next creation, before or after the file exists."""

    loses = ""

    def create(self, name, content):
        loses, self.loses = self.loses, ""
        if loses == "before":
            raise UnreachableError("no answer")
        created = super().create(name, content)
        if loses == "after":
            raise UnreachableError("no answer")
        return created


class Writer:
    """A process with the log; `state` is every content that counts for it."""

    def __init__(self, folder):
        self.log = SharedLog(folder)
        loaded = self.log.claim()
        self.state = [] if loaded.snapshot is None else json.loads(loaded.snapshot)
        self.state += [content.decode() for _, content in loaded.contents]
        self.position = self.log.end
        if loaded.snapshot is None:
            self.put_snapshot()

    def append(self, text):
        self.position = self.log.append(text.encode())
        self.state.append(text)

    def put_snapshot(self):
        self.log.put_snapshot(json.dumps(self.state).encode(), self.position)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.just(0), st.just("")),
        st.tuples(st.just("append"), st.integers(0, 2), st.sampled_from(["", "", "before", "after"])),
        st.tuples(st.just("snapshot"), st.integers(0, 2), st.just("")),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_acknowledged_change_is_lost_and_no_undone_one_counts(steps):
    folder = LossyFolder()
    writers = [Writer(folder)]
    acknowledged, uncertain = [], {}
    for number, (step, back, loses) in enumerate(steps):
        # The newest writer, or one that it replaced, which has stood still meanwhile.
        writer = writers[max(0, len(writers) - 1 - back)]
        if step == "start":
            writers.append(Writer(folder))
        elif step == "snapshot":
            writer.put_snapshot()
        else:
            folder.loses = loses
            try:
                writer.append(str(number))
            except LogLostError:
                assert writer is not writers[-1]
            except StoreError:
                uncertain.setdefault(writer, set()).add(str(number))
            else:
                assert writer is writers[-1]
                acknowledged.append(str(number))
                # It goes on without what failed before.
                uncertain.pop(writer, None)
            folder.loses = ""
    restored = Writer(folder).state
    assert [text for text in restored if text in acknowledged] == acknowledged
    assert set(restored) - set(acknowledged) <= set().union(*uncertain.values())
    assert len(set(restored)) == len(restored)
