"""Certificates of an authority made for the tests, with openssl's own program."""

import ssl
import subprocess


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def sign(folder, name, extensions, subject="/O=Snug tests/CN=test", kind=("rsa:2048",)):
    """A key and a certificate of the authority."""
    openssl(folder, "req", "-newkey", *kind, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
    (folder / f"{name}.ext").write_text(extensions)
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")


def make(folder):
    """Two authorities, a server's certificate with either kind of key, a client's, and a
    key that is encrypted with the pass phrase `open sesame`."""
    for name, subject in (("ca", "/CN=Snug test authority"), ("other", "/CN=Another authority")):
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2", "-subj", subject)
    here = "subjectAltName=DNS:localhost,IP:127.0.0.1\n"
    sign(folder, "server", here)
    sign(folder, "elliptic", here, kind=("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"))
    sign(folder, "client", "extendedKeyUsage=clientAuth\n", subject="/O=Snug tests/CN=someone")
    openssl(folder, "pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", "server.key", "-passout", "pass:open sesame", "-out", "encrypted.key")
    return folder


def trusting(folder, certificate=None):
    """How a client that trusts the authority shakes hands, with a certificate or without."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    if certificate:
        context.load_cert_chain(folder / f"{certificate}.crt", folder / f"{certificate}.key")
    return context


def flags(folder, port, clients="no", name="server"):
    """What a server is started with to speak TLS."""
    return [
        "--tls-port", str(port), "--tls-auth-clients", clients, "--tls-ca-cert-file", str(folder / "ca.crt"),
        "--tls-cert-file", str(folder / f"{name}.crt"), "--tls-key-file", str(folder / f"{name}.key"),
    ]  # fmt: skip
