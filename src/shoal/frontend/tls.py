"""TLS: the context of a server's certificate."""

import ssl

from shoal.errors import ConfigError


def tls_context(certificate_file: str, private_key_file: str) -> ssl.SSLContext:
    """Make what listeners need to speak TLS; a certificate or key that cannot be used is a `ConfigError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate_file, private_key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use {certificate_file} and {private_key_file} for TLS: {error}") from None
    return context
