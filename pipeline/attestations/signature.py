"""model.sig: a signature over a folder by the OpenSSF model signing format, with a key of one's own (extra `sign`)."""

from pathlib import Path

from pipeline.errors import DataError

FILE = "model.sig"
IGNORED = (FILE, "lineage.json")
"""lineage.json lists the signature, so that it can't be signed itself; it is sealed, and provenance is signed"""


def sign(folder: Path, key: Path) -> None:
    """Write `model.sig` into the folder. key: a private key of an elliptic curve, PEM, without a password.

    Raises DataError where the library is not installed, and for what is no such key.
    """
    try:
        from model_signing import hashing, signing
    except ImportError:
        raise DataError(
            "--sign needs the library model-signing", "Install it: pip install -c requirements.lock -e '.[sign]'"
        ) from None
    ignored = hashing.Config().set_ignored_paths(paths=IGNORED, ignore_git_paths=False)
    try:
        signer = signing.Config().use_elliptic_key_signer(private_key=key)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{key} is no private key to sign with: {error}",
            "Make one: openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
        ) from error
    signer.set_hashing_config(ignored).sign(folder, folder / FILE)
