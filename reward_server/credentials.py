# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Who may talk: what a server asks of its callers, and what a caller shows and trusts.

Files are read once, at start.
"""

from __future__ import annotations

import dataclasses

import grpc

from reward_server import auth, tls
from reward_server.config import ConfigError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerCredentials:
    """What a server shows its callers and asks of them.

    Attributes:
        cert: its certificate, PEM; empty for no TLS.
        key: the private key of that, PEM.
        client_ca: CA that must have signed the callers' certificates; empty asks for none.
        token: that callers must show; empty asks for none.
    """

    cert: bytes = dataclasses.field(default=b"", repr=False)
    key: bytes = dataclasses.field(default=b"", repr=False)
    client_ca: bytes = dataclasses.field(default=b"", repr=False)
    token: str = dataclasses.field(default="", repr=False)

    @classmethod
    def load(
        cls, *, cert: str | None, key: str | None, client_ca: str | None, token_file: str | None
    ) -> ServerCredentials:
        """Reads the files of the flags --tls-cert, --tls-key, --tls-client-ca, --token-file.

        Raises:
            ConfigError: a flag or its file is missing or wrong.
        """
        if client_ca is not None and cert is None and key is None:
            raise ConfigError("`--tls-client-ca` must come with `--tls-cert` and `--tls-key`.")
        cert_bytes, key_bytes = tls.read_pair(("--tls-cert", "--tls-key"), cert, key)
        return cls(
            cert=cert_bytes,
            key=key_bytes,
            client_ca=b"" if client_ca is None else tls.read_ca("--tls-client-ca", client_ca),
            token="" if token_file is None else auth.read_token("--token-file", token_file),
        )

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.cert)

    @property
    def asks(self) -> bool:
        """Whether callers must show who they are."""
        return bool(self.client_ca or self.token)

    def for_port(self) -> grpc.ServerCredentials:
        """Credentials of a TLS port."""
        return grpc.ssl_server_credentials(
            [(self.key, self.cert)],
            root_certificates=self.client_ca or None,
            require_client_auth=bool(self.client_ca),
        )

    def interceptors(self) -> list[grpc.aio.ServerInterceptor]:
        """Refuses calls without the token, if there is one."""
        return [auth.TokenInterceptor(self.token)] if self.token else []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """What a caller of a server or worker shows, and whom it trusts.

    Attributes:
        prefix: of the caller's flags, for messages: "--workers-" or "--".
        ca: CA of the servers, PEM; empty for no TLS.
        cert: certificate to show, PEM; empty shows none.
        key: the private key of that, PEM.
        token: to show; empty shows none.
    """

    prefix: str = "--"
    ca: bytes = dataclasses.field(default=b"", repr=False)
    cert: bytes = dataclasses.field(default=b"", repr=False)
    key: bytes = dataclasses.field(default=b"", repr=False)
    token: str = dataclasses.field(default="", repr=False)

    @classmethod
    def load(
        cls,
        *,
        prefix: str,
        ca: str | None,
        cert: str | None,
        key: str | None,
        token_file: str | None,
    ) -> ClientCredentials:
        """Reads the files of the flags tls-ca, tls-cert, tls-key and token-file.

        Raises:
            ConfigError: a flag or its file is missing or wrong.
        """
        ca_flag, cert_flag, key_flag = _tls_flags(prefix)
        if ca is None and (cert is not None or key is not None):
            raise ConfigError(f"`{cert_flag}` and `{key_flag}` must come with `{ca_flag}`.")
        cert_bytes, key_bytes = tls.read_pair((cert_flag, key_flag), cert, key)
        flag = f"{prefix}token-file"
        return cls(
            prefix=prefix,
            ca=b"" if ca is None else tls.read_ca(ca_flag, ca),
            cert=cert_bytes,
            key=key_bytes,
            token="" if token_file is None else auth.read_token(flag, token_file),
        )

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call."""
        return auth.bearer(self.token)

    def check_address(self, address: str) -> None:
        """Refuses TLS on a unix socket, which has no name that a certificate could hold.

        Raises:
            ConfigError: names the flag and the address.
        """
        if self.ca and address.startswith("unix:"):
            raise ConfigError(
                f"`{self.prefix}tls-ca` must be left out for a unix socket, got {address}."
            )

    def for_channel(self) -> grpc.ChannelCredentials | None:
        """Credentials of a channel, or None without TLS."""
        if not self.ca:
            return None
        return grpc.ssl_channel_credentials(self.ca, self.key or None, self.cert or None)

    def explain(self, details: str, peer: str, *, host: str | None = None) -> str:
        """Says what to do about a handshake that can't succeed; "" for any other failure.

        Args:
            details: of the failed call.
            peer: address that was called.
            host: name that the certificate must hold, if it is not that of the address.
        """
        host = host or peer.rpartition(":")[0].removeprefix("dns:///").strip("[]")
        return tls.explain(details, flag=f"{self.prefix}tls-ca", peer=peer, host=host)

    def guess(self, details: str) -> str:
        """Says what may be behind a connection that the server cut; "" for other failures."""
        flags = _tls_flags(self.prefix)
        return tls.guess(details, flags=flags, tls=bool(self.ca), cert=bool(self.cert))


def _tls_flags(prefix: str) -> tuple[str, str, str]:
    return f"{prefix}tls-ca", f"{prefix}tls-cert", f"{prefix}tls-key"
