# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made anew each time, and files of tokens."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
NAMES = ("localhost", "127.0.0.1", "::1")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A CA: its certificate is the file `ca`."""

    def __init__(self, folder, name="ca"):
        """Makes key and certificate."""
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / f"{name}.pem"
        builder = self._builder(name, self._key, days=1)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, name, key, *, days):
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + days * DAY)
        )

    def issue(self, name, *, names=NAMES, days=1):
        """Signs a certificate for hosts; with `days=-1` it expired yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in names])
        builder = self._builder(name, key, days=days).add_extension(alternatives, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = Pair(
            self._folder / f"{self._name}-{name}.pem", self._folder / f"{self._name}-{name}.key"
        )
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(private_pem(key, serialization.NoEncryption()))
        return pair


def private_pem(key, encryption):
    """A private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def _named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def token_file(path, token="s3cret-t0ken", *, mode=0o600):
    """Writes a token for its owner only."""
    path.write_text(f"{token}\n", encoding="utf-8")
    path.chmod(mode)
    return path
