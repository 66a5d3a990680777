"""An HDFS in memory with a WebHDFS interface. Tests can make it fail.

Errors and their texts are those that Hadoop 3.4.2 sends. NameNode and DataNode are one server; a redirect leads to the
same address with `datanode=1`.
"""

import itertools
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from posixpath import dirname
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from free_ports import free_port

PREFIX = "/webhdfs/v1"


@dataclass
class Fault:
    """A fault of the next `times` requests of an operation, at the node that does the work.

    `cut_after`: the connection is cut after this many bytes of content. `lost_reply`: the operation is done, but the
    reply is not sent. `status` and `exception`: the reply.
    """

    op: str
    times: int = 1
    cut_after: int | None = None
    lost_reply: bool = False
    status: int = 403
    exception: str = ""
    message: str = "asked to fail"
    plain: bool = False
    match: str = ""


@dataclass
class Node:
    content: bytes | None
    file_id: int
    modified_ms: int


@dataclass
class FakeHdfs:
    """The state; `requests` lists (op, path) of every request that did or should have done something."""

    nodes: dict[str, Node] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    tokens: list[str] = field(default_factory=list)
    permissions: dict[str, str] = field(default_factory=dict)
    received_bytes: int = 0
    sent_bytes: int = 0
    joins: bool = True
    now_ms: int = 1_000_000

    def __post_init__(self):
        self.lock = threading.RLock()
        self.ids = itertools.count(1)
        self.put("/", None)

    def put(self, path, content):
        self.now_ms += 1
        self.nodes[path] = Node(content, next(self.ids), self.now_ms)
        if path != "/":
            self.folders(dirname(path))
            self.nodes[dirname(path)].modified_ms = self.now_ms

    def folders(self, path):
        if path not in self.nodes:
            self.put(path, None)

    def below(self, path):
        return [name for name in self.nodes if name.startswith(path.rstrip("/") + "/")]

    def children(self, path):
        return [name for name in self.below(path) if dirname(name) == path]

    def files(self):
        return {path: node.content for path, node in self.nodes.items() if node.content is not None}

    def take_fault(self, op, path):
        with self.lock:
            for fault in self.faults:
                if fault.op == op and fault.match in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def fail(self, op, **what):
        self.faults.append(Fault(op, **what))


class Server:
    """Serves a FakeHdfs on a free port of the loopback; `stop` and `start` play a NameNode that dies and comes back."""

    def __init__(self):
        self.hdfs = FakeHdfs()
        self.port = free_port("127.0.0.1")
        self.start()

    def start(self):
        hdfs = self.hdfs

        class Handler(_Handler):
            state = hdfs

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def uri(self, path="/ck"):
        return f"webhdfs://127.0.0.1:{self.port}{path}"


class RefusalError(Exception):
    def __init__(self, exception, message, status=403):
        super().__init__(message)
        self.exception, self.message, self.status = exception, message, status


class _CutError(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeHdfs

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve()

    do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def serve(self):
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        path = unquote(parts.path[len(PREFIX) :]).rstrip("/") or "/"
        op = self.query["op"].upper()
        self.close_connection = True
        if op in ("CREATE", "APPEND", "OPEN") and "datanode" not in self.query:
            self.redirect(path, parts.query)
            return
        state = self.state
        with state.lock:
            state.requests.append((op, path))
            state.users.add(self.query.get("user.name", ""))
            state.tokens.append(self.query.get("delegation", ""))
        self.fault = state.take_fault(op, path)
        try:
            if self.fault and (self.fault.exception or self.fault.plain):
                raise RefusalError(self.fault.exception, self.fault.message, self.fault.status)
            # A body is read outside the lock: it may come slowly.
            body = self.body() if op in ("CREATE", "APPEND") else b""
            with state.lock:
                answer = getattr(self, op.lower())(path, *([body] if op in ("CREATE", "APPEND") else []))
            if self.fault and self.fault.lost_reply:
                return
            self.answer(200, answer)
        except RefusalError as refusal:
            if self.fault and self.fault.plain:
                self.answer(refusal.status, b"<html>busy</html>")
            else:
                error = {"exception": refusal.exception, "message": refusal.message, "javaClassName": "x"}
                self.answer(refusal.status, {"RemoteException": error})
        except (_CutError, ConnectionError):
            pass

    def redirect(self, path, query):
        host, port = self.server.server_address
        self.send_response(307)
        self.send_header("Location", f"http://{host}:{port}{PREFIX}{quote(path)}?{query}&datanode=1")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def answer(self, status, value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        cut = self.fault.cut_after if self.fault and self.query["op"].upper() == "OPEN" else None
        sent = data if cut is None else data[:cut]
        # Counted first: once it is written the test goes on, and looks.
        self.state.sent_bytes += len(sent)
        self.wfile.write(sent)

    def body(self):
        limit = self.fault.cut_after if self.fault else None
        read = bytearray()
        for piece in self.pieces():
            read += piece
            self.state.received_bytes += len(piece)
            if limit is not None and len(read) >= limit:
                raise _CutError
        return bytes(read)

    def pieces(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    # ---- the operations ----

    def create(self, path, body):
        node = self.state.nodes.get(path)
        if node is not None and (node.content is None or self.query.get("overwrite", "").lower() != "true"):
            raise RefusalError("FileAlreadyExistsException", f"{path} already exists")
        self.state.put(path, body)
        if "permission" in self.query:
            self.state.permissions[path] = self.query["permission"]
        return b""

    def append(self, path, body):
        self.state.put(path, self.file(path).content + body)
        return b""

    def open(self, path):
        content = self.file(path).content
        offset = int(self.query.get("offset", 0))
        if offset >= len(content) > 0:
            raise RefusalError("IOException", f"Offset={offset} out of the range [0, {len(content)})")
        return content[offset : offset + int(self.query.get("length", len(content)))]

    def getfilestatus(self, path):
        return {"FileStatus": self.status(path, "")}

    def liststatus(self, path):
        self.node(path)
        names = sorted(self.state.children(path))
        return {"FileStatuses": {"FileStatus": [self.status(name, name.rpartition("/")[2]) for name in names]}}

    def mkdirs(self, path):
        if path not in self.state.nodes and "permission" in self.query:
            self.state.permissions[path] = self.query["permission"]
        self.state.folders(path)
        return {"boolean": True}

    def delete(self, path):
        there = path in self.state.nodes
        for name in [path, *self.state.below(path)]:
            self.state.nodes.pop(name, None)
        return {"boolean": there}

    def rename(self, path):
        target, options = self.query["destination"], self.query.get("renameoptions", "")
        assert options in ("NONE", "OVERWRITE"), "without options a folder is moved into the target"
        if path not in self.state.nodes:
            raise RefusalError("FileNotFoundException", f"rename source {path} is not found.", 404)
        if target in self.state.nodes and (options == "NONE" or self.state.children(target)):
            raise RefusalError("FileAlreadyExistsException", f"rename destination {target} already exists")
        for name in [path, *self.state.below(path)]:
            self.state.nodes[target + name[len(path) :]] = self.state.nodes.pop(name)
            if name in self.state.permissions:
                self.state.permissions[target + name[len(path) :]] = self.state.permissions.pop(name)
        return b""

    def settimes(self, path):
        self.file(path).modified_ms = int(self.query["modificationtime"])
        return b""

    def concat(self, path):
        if not self.state.joins:
            raise RefusalError(
                "HadoopIllegalArgumentException", "concat can not be called for files in an encryption zone."
            )
        sources = self.query["sources"].split(",")
        content = self.file(path).content + b"".join(self.file(source).content for source in sources)
        for source in sources:
            assert dirname(source) == dirname(path)
            del self.state.nodes[source]
        self.state.put(path, content)
        return b""

    def node(self, path):
        if path not in self.state.nodes:
            raise RefusalError("FileNotFoundException", f"File {path} does not exist.", 404)
        return self.state.nodes[path]

    def file(self, path):
        node = self.node(path)
        if node.content is None:
            raise RefusalError("FileNotFoundException", f"Path is not a file: {path}", 404)
        return node

    def status(self, path, name):
        node = self.node(path)
        kind = "DIRECTORY" if node.content is None else "FILE"
        size = len(node.content or b"")
        return {"pathSuffix": name, "type": kind, "length": size, "modificationTime": node.modified_ms,
                "fileId": node.file_id}  # fmt: skip
