"""Kerberos on a development cluster: properties of Hadoop's files, given a running KDC.

All principals are named for the host `localhost`: the daemons' addresses are not known when keytabs are made. DataNodes
of a secure HDFS want ports below 1024 or TLS on their pages, and take neither here; the property that lets them do
without is Hadoop's own, for tests.
"""

from __future__ import annotations

from collections.abc import Mapping

from themis.values import Value

HDFS_PRINCIPAL, YARN_PRINCIPAL, WEB_PRINCIPAL = "hdfs/localhost", "yarn/localhost", "HTTP/localhost"
PRINCIPALS = (HDFS_PRINCIPAL, YARN_PRINCIPAL, WEB_PRINCIPAL)
"""Principals that the KDC must know, with keys in the keytab."""
DAY_S = 24 * 3600


class Kerberos(Value, frozen=True, kw_only=True):
    """A realm with a running KDC.

    Attributes:
        realm: Its name.
        krb5_conf: Path of the file by which Java finds the KDC.
        keytab: Path of a keytab with the keys of `PRINCIPALS`.
        proxy_user: The short name of the user who may act for `proxied`; empty for none.
        proxied: A comma-separated list of users.
        token_life_s: Time after which a delegation token of HDFS's ends unless it is renewed, in seconds.
        token_greatest_life_s: Time after which it cannot be renewed any more, in seconds.
    """

    realm: str
    krb5_conf: str
    keytab: str
    proxy_user: str = ""
    proxied: str = ""
    token_life_s: int = DAY_S
    token_greatest_life_s: int = 7 * DAY_S

    @property
    def java_option(self) -> str:
        """The option of every JVM, including the clients'."""
        return f"-Djava.security.krb5.conf={self.krb5_conf}"

    def core_site(self) -> Mapping[str, str]:
        """Properties of core-site.xml."""
        users = [principal.partition("/")[0] for principal in PRINCIPALS] + [self.proxy_user, *self.proxied.split(",")]
        found = {
            "hadoop.security.authentication": "kerberos",
            # These users have no account on this machine, where Hadoop would look for their groups.
            "hadoop.user.group.static.mapping.overrides": ";".join(f"{user}={user}" for user in users if user),
        }
        if self.proxy_user:
            found[f"hadoop.proxyuser.{self.proxy_user}.hosts"] = "*"
            found[f"hadoop.proxyuser.{self.proxy_user}.users"] = self.proxied
        return found

    def hdfs_site(self) -> Mapping[str, str]:
        """Properties of hdfs-site.xml."""
        web = self._full(WEB_PRINCIPAL)
        return {
            "dfs.namenode.kerberos.principal": self._full(HDFS_PRINCIPAL),
            "dfs.namenode.keytab.file": self.keytab,
            "dfs.namenode.kerberos.internal.spnego.principal": web,
            "dfs.web.authentication.kerberos.principal": web,
            "dfs.web.authentication.kerberos.keytab": self.keytab,
            "dfs.datanode.kerberos.principal": self._full(HDFS_PRINCIPAL),
            "dfs.datanode.keytab.file": self.keytab,
            "dfs.block.access.token.enable": "true",
            "dfs.data.transfer.protection": "authentication",
            "dfs.http.policy": "HTTP_ONLY",
            "ignore.secure.ports.for.testing": "true",
            "dfs.namenode.delegation.token.renew-interval": str(self.token_life_s * 1000),
            "dfs.namenode.delegation.token.max-lifetime": str(self.token_greatest_life_s * 1000),
        }

    def yarn_site(self) -> Mapping[str, str]:
        """Properties of yarn-site.xml."""
        found = {
            # The REST service and the pages stay open.
            "yarn.resourcemanager.webapp.delegation-token-auth-filter.enabled": "false",
            # A NodeManager aggregates logs with Hadoop's native libraries alone, and ends where it has none.
            "yarn.log-aggregation-enable": "false",
        }
        for daemon in ("resourcemanager", "nodemanager"):
            found[f"yarn.{daemon}.principal"] = self._full(YARN_PRINCIPAL)
            found[f"yarn.{daemon}.keytab"] = self.keytab
        return found

    def _full(self, principal: str) -> str:
        return f"{principal}@{self.realm}"
