"""Who we are to Hadoop: Kerberos logins, delegation tokens, and what tasks may be given of them.

| where | with Kerberos | without |
|---|---|---|
| who submits | keytab and principal (`login`), or a ticket of `kinit` | the process's user, or HADOOP_USER_NAME |
| the same, over WebHDFS | `own_token`, which `themis.hadoop.login_tokens` replaces before it ends | the same |
| an app master's submission | `submission_tokens`: of the file systems, for `ProcessLaunch.tokens` | none |
| the app master | tokens of HADOOP_TOKEN_FILE_LOCATION, which Hadoop's classes read by themselves | its AMRM token |
| a task | `task_tokens`: the same without the AMRM token, with which it could act as the app master | none needed |

Keytab and principal are named by THEMIS_HADOOP_KEYTAB and THEMIS_HADOOP_PRINCIPAL, or by the properties
`themis.keytab` and `themis.principal` of a site file; `_HOST` in the principal stands for this host's name.

Tokens of a submission are not replaced: past HDFS's maximum lifetime the application reaches HDFS no more. What was
tested is in docs/how-to/hadoop.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jpype

from themis.hadoop.client_configuration import DEFAULT_CONNECT_WAIT_S, yarn_configuration
from themis.hadoop.errors import LoginError
from themis.hadoop.java_errors import typed_errors
from themis.hadoop.jvm import start_jvm
from themis.hadoop.records import java_class
from themis.hadoop.webhdfs_token import APP_TOKEN, IssuedToken

KEYTAB_VARIABLE = "THEMIS_HADOOP_KEYTAB"
PRINCIPAL_VARIABLE = "THEMIS_HADOOP_PRINCIPAL"
_AMRM_TOKEN = "YARN_AM_RM_TOKEN"

_Answer = TypeVar("_Answer")
_logging_in = threading.Lock()


def login(configuration: Any, environment: Mapping[str, str] | None = None) -> None:
    """Log in from the keytab if security is on and a keytab is named. Hadoop renews that login by itself.

    With security on and no keytab the process must hold tokens or a ticket; Hadoop says so when it does not.

    Args:
        configuration: Of Hadoop's class `Configuration`.
        environment: Names keytab and principal; this process's by default.

    Raises:
        LoginError: Only one of the two is named, no such file, or Kerberos does not accept it.
    """
    users = _users()
    with _logging_in, typed_errors("logging in to Hadoop"):
        users.setConfiguration(configuration)
        if not users.isSecurityEnabled():
            return
        named = _keytab_and_principal(configuration, os.environ if environment is None else environment)
        if named is None or users.isLoginKeytabBased():
            return
        keytab, principal = named
        host = java_class("java.net.InetAddress").getLocalHost().getCanonicalHostName()
        full = java_class("org.apache.hadoop.security.SecurityUtil").getServerPrincipal(principal, host)
        users.loginUserFromKeytab(full, keytab)


def is_secure() -> bool:
    """Whether the cluster's configuration demands Kerberos."""
    return bool(_users().isSecurityEnabled())


def current_user() -> str:
    """The short name under which Hadoop knows this process."""
    with typed_errors("asking who we are"):
        return str(_users().getCurrentUser().getShortUserName())


def act_as(user: str, action: Callable[[], _Answer]) -> _Answer:
    """Do something in another user's name.

    With Kerberos this process's own login must be allowed to (`hadoop.proxyuser.*` of the cluster); without, Hadoop
    believes everybody.
    """
    users = _users()
    other = users.createProxyUser(user, users.getLoginUser()) if is_secure() else users.createRemoteUser(user)
    answers: list[_Answer] = []
    failures: list[Exception] = []

    def run() -> None:
        # An exception must not cross Java on its way: it would arrive as another one.
        try:
            answers.append(action())
        except Exception as error:
            failures.append(error)

    other.doAs(jpype.JProxy("java.security.PrivilegedExceptionAction", dict={"run": run}))
    if failures:
        raise failures[0]
    return answers[0]


def submission_tokens(
    file_systems: Iterable[str] = (), *, app_token: str = "", connect_wait_s: float = DEFAULT_CONNECT_WAIT_S
) -> bytes:
    """Return the delegation tokens that an app master needs, for `ProcessLaunch.tokens`.

    They are empty if security is off and there is no `app_token`.

    YARN's ResourceManager renews them for as long as the application runs, up to HDFS's maximum lifetime (7 days).

    Args:
        file_systems: URIs of the file systems that it will read or write; the cluster's default one if none is given.
        app_token: The secret in these credentials with which the app master proves its attempt to us.
        connect_wait_s: Seconds to wait for a service that is unavailable.
    """
    configuration = yarn_configuration(connect_wait_s)
    login(configuration)
    if not is_secure() and not app_token:
        return b""
    with typed_errors("fetching delegation tokens"):
        renewer = java_class("org.apache.hadoop.yarn.client.util.YarnClientUtils").getRmPrincipal(configuration)
        credentials = java_class("org.apache.hadoop.security.Credentials")()
        if app_token:
            key = jpype.JArray(jpype.JByte)(app_token.encode())
            credentials.addSecretKey(java_class("org.apache.hadoop.io.Text")(APP_TOKEN), key)
        if not is_secure():
            return _serialised(credentials)
        uris = java_class("java.net.URI")
        systems = java_class("org.apache.hadoop.fs.FileSystem")
        named = list(file_systems) or [str(systems.getDefaultUri(configuration))]
        for name in named:
            systems.get(uris(name), configuration).addDelegationTokens(renewer, credentials)
        return _serialised(credentials)


def own_token(file_system: str, environment: Mapping[str, str]) -> IssuedToken:
    """Return a new delegation token for our own use, without a renewer.

    Args:
        file_system: URI of the file system.
        environment: Leads to configuration, jars and keytab.

    Raises:
        LoginError: No login, because the KDC is unavailable too, or the NameNode does not accept it.
        UnreachableError: The NameNode is unavailable.
    """
    start_jvm(environment)
    configuration = yarn_configuration(DEFAULT_CONNECT_WAIT_S)
    login(configuration, environment)
    with typed_errors("fetching a delegation token", file_system):
        us = _users().getLoginUser()
        us.checkTGTAndReloginFromKeytab()
        uri = java_class("java.net.URI")(file_system)
        system = java_class("org.apache.hadoop.fs.FileSystem").get(uri, configuration)
        token = system.getDelegationToken(us.getUserName())
        # Only a renewal returns the end, and only the renewer may renew. Both times are the NameNode's.
        ends_ms, issued_ms = int(token.renew(configuration)), int(token.decodeIdentifier().getIssueDate())
        return IssuedToken(text=str(token.encodeToUrlString()), life_s=(ends_ms - issued_ms) / 1000)


def task_tokens() -> bytes:
    """This process's tokens for its tasks: all but the app master's own, for `ProcessLaunch.tokens`.

    Its secrets are its own, too: one of them proves its attempt.
    """
    with typed_errors("reading our tokens"):
        credentials = java_class("org.apache.hadoop.security.Credentials")()
        for token in _users().getCurrentUser().getCredentials().getAllTokens():
            if str(token.getKind()) != _AMRM_TOKEN:
                credentials.addToken(token.getService(), token)
        return _serialised(credentials) if int(credentials.numberOfTokens()) else b""


def _users() -> Any:
    return java_class("org.apache.hadoop.security.UserGroupInformation")


def _serialised(credentials: Any) -> bytes:
    stream = java_class("java.io.ByteArrayOutputStream")()
    credentials.writeTokenStorageToStream(java_class("java.io.DataOutputStream")(stream))
    return bytes(stream.toByteArray())


def _keytab_and_principal(configuration: Any, environment: Mapping[str, str]) -> tuple[str, str] | None:
    keytab = environment.get(KEYTAB_VARIABLE) or str(configuration.get("themis.keytab", ""))
    principal = environment.get(PRINCIPAL_VARIABLE) or str(configuration.get("themis.principal", ""))
    if not keytab and not principal:
        return None
    if not (keytab and principal):
        raise LoginError(
            "a keytab needs a principal, and a principal its keytab",
            value=keytab or principal,
            remedy=f"set both {KEYTAB_VARIABLE} and {PRINCIPAL_VARIABLE}, or neither",
        )
    if not Path(keytab).is_file():
        raise LoginError("no such keytab", value=keytab)
    return keytab, principal
