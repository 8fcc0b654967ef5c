# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reward client shows the reward server, and whom it trusts; and failed handshakes."""

from __future__ import annotations

import dataclasses
import os
import ssl
import stat
from pathlib import Path

import grpc

Source = str | os.PathLike[str] | None

# What a client sees when a server hangs up in the handshake, or takes TLS for a broken call.
_HUNG_UP = ("Socket closed", "Connection reset", "Broken pipe", "ALERT")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """Contents of the files that `RewardClientConfig` names.

    Attributes:
        ca: CA of the server, PEM; empty for no TLS.
        cert: certificate to show, PEM; empty shows none.
        key: the private key of that, PEM.
        token: to show; empty shows none.
    """

    ca: bytes = dataclasses.field(default=b"", repr=False)
    cert: bytes = dataclasses.field(default=b"", repr=False)
    key: bytes = dataclasses.field(default=b"", repr=False)
    token: str = dataclasses.field(default="", repr=False)

    @classmethod
    def load(
        cls, *, tls_ca: Source, tls_cert: Source, tls_key: Source, token_file: Source
    ) -> ClientCredentials:
        """Reads and checks the files.

        Raises:
            ValueError: a file is missing, can't be read or does not go with the others.
        """
        cert, key = b"", b""
        if tls_cert is not None or tls_key is not None:
            if tls_ca is None or tls_cert is None or tls_key is None:
                raise ValueError(
                    "`tls_ca`, `tls_cert` and `tls_key` must be given together"
                    " (--reward-tls-ca, --reward-tls-cert, --reward-tls-key)."
                )
            cert, key = _read_pair(tls_cert, tls_key)
        return cls(
            ca=b"" if tls_ca is None else _read_ca(tls_ca),
            cert=cert,
            key=key,
            token="" if token_file is None else _read_token(token_file),
        )

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def for_channel(self) -> grpc.ChannelCredentials | None:
        """Credentials of a channel, or None without TLS."""
        if not self.ca:
            return None
        return grpc.ssl_channel_credentials(self.ca, self.key or None, self.cert or None)

    def guess(self, details: str) -> str:
        """Says what may be behind a connection that the server cut; "" for other failures."""
        if not any(word in details for word in _HUNG_UP):
            return ""
        if not self.ca:
            return "It may expect TLS: pass tls_ca (--reward-tls-ca)."
        if not self.cert:
            return (
                "It may expect a client certificate: pass tls_cert and tls_key"
                " (--reward-tls-cert, --reward-tls-key)."
            )
        return "The CA of its --tls-client-ca must have signed tls_cert (--reward-tls-cert)."


def explain(details: str, endpoint: str) -> str:
    """Says what to do about a handshake that can't succeed; "" for any other failure."""
    if "certificate has expired" in details:
        return f"The certificate of {endpoint} has expired. Renew the file of its --tls-cert."
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return (
            f"tls_ca (--reward-tls-ca) must hold the CA that signed the certificate of {endpoint}."
        )
    if "Hostname Verification" in details:
        host = endpoint.rpartition(":")[0].removeprefix("dns:///").strip("[]")
        return f"The certificate of {endpoint} must name {host} (subject alternative name)."
    if "WRONG_VERSION_NUMBER" in details:
        return (
            f"{endpoint} has no TLS. Start it with --tls-cert and --tls-key, or drop tls_ca"
            " (--reward-tls-ca)."
        )
    return ""


def _read_ca(path: str | os.PathLike[str]) -> bytes:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(
            f"`tls_ca` (--reward-tls-ca) must be a PEM file of certificates, got {path}: {error}."
        ) from error


def _read_pair(cert: str | os.PathLike[str], key: str | os.PathLike[str]) -> tuple[bytes, bytes]:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
        return Path(cert).read_bytes(), Path(key).read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(
            "`tls_cert` (--reward-tls-cert) and `tls_key` (--reward-tls-key) must be PEM files that"
            f" belong together, got {cert} and {key}: {error}."
        ) from error


def _read_token(path: str | os.PathLike[str]) -> str:
    """Reads a token of its owner, or of root and a group; says nothing of its content."""
    name = "`token_file` (--reward-token-file)"
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{name} must be a regular file, got {path}.")
        mode = stat.S_IMODE(found.st_mode)
        if mode & _forbidden(found.st_uid):
            raise ValueError(
                f"{name} must be for its owner only, got mode {mode:04o} of {path}."
                f" Say: chmod 600 {path}"
            )
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise ValueError(f"{name} must be a readable file, got {path}: {error}.") from error
    if not token:
        raise ValueError(f"{name} must hold a token, got an empty file {path}.")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise ValueError(f"{name} must hold one word of ASCII, got other bytes in {path}.")
    return token.decode()


def _forbidden(owner: int) -> int:
    # Kubernetes leaves a Secret's files to root and lets the group of a pod's user read them.
    shared = owner == 0 and os.geteuid() != 0
    return stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if shared else stat.S_IRWXG)
