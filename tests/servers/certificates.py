"""Certificates for the servers of the tests: an authority, and keys that it has signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCALHOST = "127.0.0.1"
_VALID = dt.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key, as text in PEM."""

    certificate: str
    key: str


class Authority:
    """Signs certificates; a client that has its certificate trusts them."""

    def __init__(self, name: str = "authority") -> None:
        self._name, self._key = _named(name), ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key).add_extension(basic, critical=True)
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def sign(self, name: str, *hosts: str) -> Identity:
        """A new key, whose certificate is for these addresses and names of hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(host) for host in hosts or (name,)])
        builder = self._builder(_named(name), key).add_extension(names, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Identity(_pem(builder.sign(self._key, hashes.SHA256())), private.decode())

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - _VALID).not_valid_after(now + _VALID)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
