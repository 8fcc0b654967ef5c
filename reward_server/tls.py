# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys: checked when they are read, and what a failed handshake means.

gRPC says only that a port can't be bound or that a connection failed, so files are tried before.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from reward_server.config import ConfigError

# What a client sees when a server hangs up in the handshake, or takes TLS for a broken call.
_HUNG_UP = ("Socket closed", "Connection reset", "Broken pipe", "ALERT")


def read_ca(flag: str, path: str) -> bytes:
    """Reads certificates to trust.

    Raises:
        ConfigError: names the flag and what is wrong with the file.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"`{flag}` must be a PEM file of certificates, got {path}: {error}."
        ) from error


def read_pair(flags: tuple[str, str], cert: str | None, key: str | None) -> tuple[bytes, bytes]:
    """Reads a certificate and its private key.

    Args:
        flags: names of both in messages.
        cert: PEM file of the certificate, those that signed it after it.
        key: PEM file of its private key, not encrypted.

    Returns:
        The certificate and the key, or two empty values if neither is given.

    Raises:
        ConfigError: one is missing, can't be read, or they don't belong together.
    """
    if cert is None and key is None:
        return b"", b""
    if cert is None or key is None:
        given, missing = flags if key is None else reversed(flags)
        raise ConfigError(f"`{given}` must come with `{missing}`, got only the first.")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
        return Path(cert).read_bytes(), Path(key).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"`{flags[0]}` and `{flags[1]}` must be PEM files that belong together,"
            f" got {cert} and {key}: {error}."
        ) from error


def explain(details: str, *, flag: str, peer: str, host: str) -> str:
    """Says what to do about a handshake that can't succeed; "" for any other failure.

    Args:
        details: of the failed call.
        flag: with which the caller trusts a CA.
        peer: address that was called.
        host: name or IP address that the certificate must hold.
    """
    if "certificate has expired" in details:
        return f"The certificate of {peer} has expired. Renew the file of its --tls-cert."
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return f"{flag} must hold the CA that signed the certificate of {peer}."
    if "Hostname Verification" in details:
        return f"The certificate of {peer} must name {host} (subject alternative name)."
    if "WRONG_VERSION_NUMBER" in details:
        return f"{peer} has no TLS. Start it with --tls-cert and --tls-key, or drop {flag}."
    return ""


def guess(details: str, *, flags: tuple[str, str, str], tls: bool, cert: bool) -> str:
    """Says what may be behind a connection that the server cut; "" if that is not what happened.

    Args:
        details: of the failed call.
        flags: of the caller, for CA, certificate and key.
        tls: whether the caller uses TLS.
        cert: whether it shows a certificate.
    """
    if not any(word in details for word in _HUNG_UP):
        return ""
    if not tls:
        return f"It may expect TLS: pass {flags[0]}."
    if not cert:
        return f"It may expect a client certificate: pass {flags[1]} and {flags[2]}."
    return f"The CA of its --tls-client-ca must have signed {flags[1]}."
