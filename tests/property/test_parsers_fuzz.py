"""Every parser of files and messages on damaged input: a value or a typed error in words, never another exception."""

import asyncio
import contextlib
import gzip
import io
import shutil
import tarfile
from pathlib import Path

import pytest
from agent_cases import cluster_of
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import APPS

from am.checkpoints.manifest import decode, encode
from am.checkpoints.store import FileRecord
from am.journal import Journal
from am.runtimes.remote import frames
from rm_plugin.arbiter.market_file import read_market
from rm_plugin.engines.remote_logs import files_of
from rm_plugin.policies.allox.instance_file import read_instance as read_allox
from rm_plugin.policies.oef.instance_file import read_instance as read_oef
from rm_plugin.service.admission import check_app
from rm_plugin.service.app_pages import mark_key
from rm_plugin.service.identities import Identities
from rm_plugin.service.own_page import own_page, peer_address
from submarine_client.groups import load_app
from submarine_client.resources import parse_resources
from tf_jobs.addresses import read_addresses
from tf_jobs.tables_reader import parse_slowdown, parse_speeds
from themis.archives import unpack_files
from themis.clock import VirtualClock
from themis.config.cluster_file import load_cluster
from themis.config.queues_file import load_queues
from themis.config.rm_settings import load_rm_settings
from themis.errors import ThemisError
from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.webhdfs_token import delegation_token, secret
from themis.tls import checked_authorities
from themis.wire import themis_pb2 as pb
from themis.wire import values
from themis_lab.simulator.recording import parse_recording
from themis_lab.simulator.workloads.gavel import read_gavel_trace, read_throughputs
from themis_lab.simulator.workloads.philly import read_philly_csv, read_philly_json

CONF = Path(__file__).parents[2] / "conf"
FUZZ = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
IDENTITIES = Identities(admins=(), anonymous=False, clock=VirtualClock(1000.0))
WORDS = st.sampled_from(
    ["", "null", "~", "[]", "{}", "-1", "0", "1e999", ".nan", "9" * 400, "!!set {a}", "*a", "&a [*a]", "\x00", "\ud7ff",
     "- ", ": ", "'", '"', "\t", "%%", "yes", "2024-01-01", "0x1f", "\n", "\u2028", "../../x", "{{", "1:30:00"]
)  # fmt: skip


def examples(folder, pattern="*.yaml"):
    return sorted((CONF / folder).glob(pattern)) if folder else sorted(CONF.glob(pattern))


@st.composite
def damaged(draw, paths):
    """A file of the repository with a few places cut out, replaced or doubled; or any text."""
    content = draw(st.sampled_from(paths)).read_bytes() if paths else b""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        size = draw(st.sampled_from([0, 0, 1, 2, 5, 20, 200]))
        word = draw(WORDS.map(lambda each: each.encode("utf-8", "surrogatepass")) | st.binary(max_size=8))
        content = content[:at] + word + content[at + size :]
    return content


def survives(parse, *allowed):
    """Parse; a typed error must say something in one line of a bounded length."""
    try:
        parse()
    except (ThemisError, *allowed) as error:
        assert str(error)
        assert len(str(error)) < 100_000


FILES = [
    pytest.param(load_app, "apps", "*.yaml", id="group files"),
    pytest.param(load_rm_settings, "", "*.yaml", id="settings"),
    pytest.param(load_cluster, "clusters", "*.yaml", id="clusters"),
    pytest.param(load_queues, "", "queues.yaml", id="queues"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("load", "folder", "pattern"), FILES)
def test_damaged_file_of_a_user_is_read_or_refused(load, folder, pattern, tmp_path):
    paths = examples(folder, pattern)
    assert paths

    @seed(1)
    @FUZZ
    @given(content=damaged(paths))
    def each(content):
        path = tmp_path / "file.yaml"
        path.write_bytes(content)
        survives(lambda: load(path))

    each()


BYTES = [
    pytest.param(read_market, "markets", id="markets"),
    pytest.param(read_allox, "instances/allox", id="allox instances"),
    pytest.param(read_oef, "instances/oef", id="oef instances"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("read", "folder"), BYTES)
def test_damaged_document_is_read_or_refused(read, folder):
    paths = examples(folder, "*.json")

    @seed(2)
    @FUZZ
    @given(content=damaged(paths))
    def each(content):
        survives(lambda: read(content, "a file"))

    each()


def read_site(path):
    folder = path.parent / "conf"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "core-site.xml")
    HadoopConfiguration.load(folder, {})


TRACES = [
    pytest.param(
        read_philly_csv,
        b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
        id="Philly CSV",
    ),
    pytest.param(
        read_philly_json,
        b'[{"status": "Pass", "vc": "a", "jobid": "j", "attempts": [{"start_time": "2017-10-01 00:00:00",'
        b' "end_time": "2017-10-01 01:00:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}], "submitted_time":'
        b' "2017-10-01 00:00:00", "user": "u"}]',
        id="Philly JSON",
    ),
    pytest.param(
        read_gavel_trace,
        b"ResNet-18 (batch size 16)\tpython3 main.py\timage\t--steps\t0\t1000\t2\tstatic\t1\t-1.0\t1234.5\t2\n",
        id="Gavel trace",
    ),
    pytest.param(
        read_throughputs,
        b'{"v100": {"(\'ResNet-18 (batch size 16)\', 1)": {"null": 10.5}}}',
        id="Gavel throughputs",
    ),
    pytest.param(lambda path: parse_recording(path.read_text("utf-8", "replace"), "x"), b"{}\n", id="recording"),
    pytest.param(lambda path: delegation_token(path, "ns"), b"HDTS\x00\x01\x01a\x01b\x01c\x01d\x01e\x00", id="tokens"),
    pytest.param(lambda path: secret(path, "a"), b"HDTS\x00\x00\x01\x01a\x01b", id="secrets"),
    pytest.param(
        read_site,
        b'<?xml version="1.0" encoding="utf-8"?><configuration xmlns:xi="http://www.w3.org/2001/XInclude">'
        b"<property><name>a</name><value>${b}</value><final>true</final></property>"
        b'<xi:include href="other"><xi:fallback/></xi:include></configuration>',
        id="Hadoop's settings",
    ),
    pytest.param(
        lambda path: Journal(path).close(),
        b'{"observation":{"kind":"REPORT","job":"j","iteration":1,"loss":0.5}}\n'
        b'{"job":{"job":"j","state":"RUNNING","incarnation":1,"iteration":2}}\n{"note":{"name":"a","value":1}}\n',
        id="journals",
    ),
    pytest.param(
        lambda path: decode(path.read_bytes(), "here"),
        encode("j", 3, (FileRecord(name="a", size_bytes=1, sha256="0"),), {"a": 1}),
        id="manifests of checkpoints",
    ),
    pytest.param(
        lambda path: checked_authorities(path.read_text("ascii", "replace"), "a file"),
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        id="certificates",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("read", "sample"), TRACES)
def test_damaged_trace_is_read_or_refused(read, sample, tmp_path):
    original = tmp_path / "original"
    original.write_bytes(sample)

    @seed(3)
    @FUZZ
    @given(content=damaged([original]))
    def each(content):
        path = tmp_path / "damaged"
        path.write_bytes(content)
        survives(lambda: read(path))

    each()


LINES = [
    pytest.param(lambda text: parse_resources(text, "--worker_resources"), "memory=4G,vcores=2,gpu=1", id="resources"),
    pytest.param(parse_slowdown, "1,1.1,1.5,2", id="slowdowns"),
    pytest.param(parse_speeds, "v100=1,k80=0.25", id="speeds"),
    pytest.param(lambda text: read_addresses({"TF_CONFIG": text}, tasks=2, task_index=0),
        '{"cluster": {"worker": ["a:1", "[::1]:2"]}, "task": {"type": "worker", "index": 0}}', id="TF_CONFIG"),
    pytest.param(mark_key, "ended-12", id="marks of pages"),
    pytest.param(IDENTITIES.of_token, IDENTITIES.local_token(1, "ann"), id="tokens"),
    pytest.param(IDENTITIES.of_action, IDENTITIES.action_token("ann", has_token=False), id="texts for actions"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "sample"), LINES)
def test_damaged_text_is_read_or_refused(read, sample, tmp_path):
    original = tmp_path / "original"
    original.write_text(sample)

    @seed(9)
    @FUZZ
    @given(content=damaged([original]))
    def each(content):
        survives(lambda: read(content.decode("utf-8", "surrogateescape")))

    each()


@seed(10)
@FUZZ
@given(st.binary(max_size=200) | st.sampled_from([b"[" * 100_000, b'{"files": [1]}', b'{"files": [{"path": 1}]}']))
def test_any_list_of_logs_of_a_page_is_read_or_refused(body):
    survives(lambda: files_of(200, body), ValueError)


@seed(4)
@FUZZ
@given(st.text(), st.text())
def test_addresses_that_apps_name_are_judged(page_url, peer):
    peer_address(peer)
    own_page("http://127.0.0.1:1/" + page_url, peer)


CONVERTED = {
    pb.AppSpec: values.app_from_message,
    pb.Cluster: values.cluster_from_message,
    pb.Bid: lambda message: values.bid_from_message(message, "app-0001"),
    pb.RhoReport: lambda message: values.report_from_message(message, "app-0001"),
    pb.Offer: values.offer_from_message,
    pb.Declaration: values.declaration_from_message,
    pb.Lease: lambda message: values.lease_from_message(message, "app-0001"),
    pb.Allocation: values.allocation_from_message,
    pb.Slowdown: values.slowdown_from_message,
    pb.BidRow: values.row_from_message,
}


@pytest.mark.parametrize("kind", CONVERTED, ids=lambda kind: kind.DESCRIPTOR.name)
def test_any_bytes_of_a_message_make_a_value_or_a_typed_error(kind):
    @seed(5)
    @FUZZ
    @given(content=st.binary(max_size=200))
    def each(content):
        with contextlib.suppress(DecodeError):
            message = kind.FromString(content)
            survives(lambda: CONVERTED[kind](message))

    each()


@st.composite
def damaged_tar(draw):
    """A tar file of which some bytes are others."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    ) as tar:
        for name in ("a", "b" * 150, "../c"):
            member = tarfile.TarInfo(name)
            member.size = 700
            tar.addfile(member, io.BytesIO(bytes(700)))
    content = bytearray(buffer.getvalue())
    for at in draw(st.lists(st.integers(0, 3_000), max_size=6)):
        content[at] = draw(st.integers(0, 255))
    return gzip.compress(bytes(content), compresslevel=1)


@seed(7)
@FUZZ
@given(content=damaged_tar() | st.binary(max_size=100))
def test_any_archive_is_unpacked_within_its_folder_or_refused(content, tmp_path):
    folder = tmp_path / "folder"
    survives(lambda: unpack_files(content, folder, max_bytes=100_000))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    shutil.rmtree(folder)


@seed(8)
@FUZZ
@given(APPS, st.booleans())
def test_any_app_of_a_client_is_accepted_or_refused(app, named):
    app = replace(app, name="app", user="ann", queue="default") if named else app
    survives(lambda: check_app(app, cluster_of((2, 2), (4,))))


HEADERS = [
    b'{"kind": "hello", "size": 0}',
    b'{"kind": 1, "size": -1}',
    b'{"kind": "x", "size": Infinity}',
    b"[" * 100_000,
    b"[]",
]


@seed(6)
@FUZZ
@given(st.binary(max_size=200) | st.sampled_from(HEADERS))
def test_any_header_of_a_frame_is_read_or_broken(line):
    async def read():
        reader = asyncio.StreamReader(limit=frames.MAX_HEADER_BYTES)
        reader.feed_data(line + b"\n")
        reader.feed_eof()
        return await frames.read(reader)

    survives(lambda: asyncio.run(read()), frames.BrokenFrameError)
