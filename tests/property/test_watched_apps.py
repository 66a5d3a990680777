"""The apps that are watched over equal a plain walk over all apps, whatever happens to the apps."""

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

from hosted_cases import InlineHost
from hypothesis import given, settings
from hypothesis import strategies as st
from instant_loop import run_instantly
from service_cases import ServiceCase, app, registration

from rm_plugin.service.store_memory import MemoryStore
from themis.errors import InputError
from themis.wire import themis_pb2 as pb

STEPS = st.lists(
    st.one_of(
        st.just(("submit", 0)),
        st.tuples(
            st.sampled_from(("grant", "register", "rest", "pause", "resume", "kill", "restart")), st.integers(0, 9)
        ),
    ),
    max_size=20,
)


async def take(case: ServiceCase, kind: str, number: int) -> None:
    manager, known = case.manager, list(case.entries)
    if kind == "submit":
        await manager.submit(app(f"a{len(known)}"))
    elif known:
        entry = known[number % len(known)]
        if kind == "grant" and entry.app_id in manager.hosted:
            manager.app_masters.start_hosted(entry)
        elif kind == "register":
            await manager.sessions.register(registration(entry))
        elif kind == "rest" and entry.session is not None:
            await case.send(entry, entry.session, rest=pb.Rest(view=b"v"))
        elif kind == "pause":
            await manager.pause(entry.app_id)
        elif kind == "resume":
            await manager.resume(entry.app_id)
        elif kind == "kill":
            await manager.kill(entry.app_id, "")
    # App masters start, end and are killed meanwhile.
    await asyncio.sleep(100.0)
    case.clock.advance_to(case.clock.now_s() + 1.0)
    manager.app_masters.check_apps()


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_watched_apps_equal_a_walk_over_all_apps(steps):
    async def scenario(folder: Path):
        def case_of(store: MemoryStore) -> ServiceCase:
            chosen = {"app_masters": "at_grant", "queues": queues, "folder": folder}
            return ServiceCase(store, host=InlineHost(), **chosen)

        queues = folder / "queues.yaml"
        queues.write_text("queues: {default: {max_active_apps: 2}}")
        store = MemoryStore()
        case = case_of(store)
        for kind, number in steps:
            if kind == "restart":
                await case.manager.app_masters.close(keep_apps=True)
                case = case_of(store)
                await case.manager.app_masters.recover()
            with contextlib.suppress(InputError):
                await take(case, kind, number)
            hosted = case.manager.hosted
            assert {entry.app_id for entry in case.manager.app_masters.watch} == {
                entry.app_id for entry in case.entries if entry.is_admitted and entry.app_id not in hosted
            }
        await case.manager.app_masters.close(keep_apps=True)

    with TemporaryDirectory() as folder:
        run_instantly(scenario(Path(folder)))
