"""A real KDC on loopback, as a process of its own: Hadoop's MiniKdc, fetched by Maven (`kdc-pom.xml`)."""

import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_until

from themis.hadoop.jars import DEFAULT_VERSION, cache_folder, fetched_jars
from themis.values import Value

REALM = "THEMIS.TEST"
POM = Path(__file__).with_name("kdc-pom.xml")
_PROPERTIES = (
    "org.name=THEMIS\norg.domain=TEST\nkdc.bind.address=127.0.0.1\nkdc.port=0\nmax.ticket.lifetime={lifetime_ms}\n"
)
_KINIT = """
import sys, jpype
jars, folder, principal, keytab, cache = sys.argv[1:]
jpype.startJVM("-Xmx64m", "-Djava.net.preferIPv4Stack=true", classpath=[f"{jars}/*"])
file = jpype.JClass("java.io.File")
client = jpype.JClass("org.apache.kerby.kerberos.kerb.client.KrbClient")(file(folder))
client.init()
client.storeTicket(client.requestTgt(principal, file(keytab)), file(cache))
"""
_KEYTAB_MAGIC = b"\x05\x02"


class Kdc(Value, frozen=True):
    """A KDC that runs; keytabs lie in its folder."""

    folder: Path
    jars: Path

    @property
    def krb5_conf(self):
        return self.folder / "krb5.conf"

    @property
    def all_keys(self):
        """A keytab with the keys of all principals."""
        return self.folder / "all.keytab"

    def keytab(self, name):
        """Of the principals whose first part is `name`."""
        return self.folder / f"{name}.keytab"

    def take_ticket(self, principal, cache):
        """What `kinit` does: a ticket for that principal, in a file that KRB5CCNAME may name."""
        keytab = self.keytab(principal.partition("/")[0])
        arguments = (self.jars, self.folder, f"{principal}@{REALM}", keytab, cache)
        subprocess.run([sys.executable, "-c", _KINIT, *map(str, arguments)], check=True, timeout=60)


def kdc_jars():
    """Folder with the KDC's jars; Maven fetches them once. Raises HadoopMissingError."""
    return fetched_jars(POM, cache_folder(DEFAULT_VERSION, "kdc"), DEFAULT_VERSION)


@contextmanager
def running_kdc(java, jars, folder, principals, *, ticket_lifetime_s=24 * 3600):
    """A KDC that knows these principals (without their realm), until the block is left."""
    (folder / "kdc.properties").write_text(_PROPERTIES.format(lifetime_ms=ticket_lifetime_s * 1000))
    command = [
        *(str(java), "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        *("-Djava.net.preferIPv4Stack=true", "-cp", f"{jars}/*", "org.apache.hadoop.minikdc.MiniKdc"),
        *(str(folder), str(folder / "kdc.properties"), str(folder / "all.keytab"), *principals),
    ]
    log = folder / "kdc.log"
    with log.open("wb") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as daemon:
        try:
            wait_until(lambda: "to stop it" in log.read_text() or daemon.poll() is not None)
            assert daemon.poll() is None, log.read_text()
            _split(folder)
            yield Kdc(folder, jars)
        finally:
            daemon.kill()


def _split(folder):
    """Make a keytab for each first part of a principal's name out of the one that holds all keys."""
    entries = {}
    for entry in _entries((folder / "all.keytab").read_bytes()):
        entries.setdefault(_first_part(entry), []).append(struct.pack(">i", len(entry)) + entry)
    for name, keys in entries.items():
        (folder / f"{name}.keytab").write_bytes(_KEYTAB_MAGIC + b"".join(keys))


def _entries(data):
    """The entries of a keytab in MIT's format, version 2: each a length followed by that number of bytes."""
    assert data.startswith(_KEYTAB_MAGIC)
    at = len(_KEYTAB_MAGIC)
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def _first_part(entry):
    """An entry begins with the number of its principal's parts, the realm and the parts, each with its length."""
    (realm_bytes,) = struct.unpack_from(">h", entry, 2)
    at = 4 + realm_bytes
    (length,) = struct.unpack_from(">h", entry, at)
    return entry[at + 2 : at + 2 + length].decode()
