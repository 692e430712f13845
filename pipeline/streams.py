"""Random numbers and hashes that depend on names only, never on order, process or machine."""

import hashlib
import json

import numpy as np


def _digest(*parts: object, size: int) -> int:
    named = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(named, digest_size=size).digest(), "big")


def stable_hash(*parts: object) -> int:
    """A 64-bit hash of strings and numbers, equal in every process."""
    return _digest(*parts, size=8)


def stream(seed: int, passed: int, doc_id: str, purpose: str) -> np.random.Generator:
    """The random numbers of one document in one pass for one purpose.

    A counter generator (Philox, Salmon et al. 2011) whose 128-bit key is a hash of the four, so that streams are
    independent of each other and of who draws them when.
    """
    return np.random.Generator(np.random.Philox(key=_digest(seed, passed, doc_id, purpose, size=16)))
