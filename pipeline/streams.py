"""Random numbers and hashes that depend on names only, never on order, process or machine.

Random numbers come from a counter generator: number `c` of the stream with a 64-bit key is a hash of the two, so that any
number of any stream is had by itself, and many streams are drawn from at once. The hash is the finaliser of SplitMix64
(Steele, Lea, Flood 2014); tests/pipeline/test_streams.py holds it against uniformity and independence.
"""

import hashlib
import json

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stable_hash(*parts: object) -> int:
    """A 64-bit hash of strings and numbers, equal in every process."""
    named = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big")


def mixed(values: Keys) -> Keys:
    """The finaliser of SplitMix64: a bijection of 64-bit numbers in which every bit depends on every bit."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def substreams(keys: Keys, *names: object) -> Keys:
    """The keys of the streams of these names below the streams `keys`."""
    return mixed(keys ^ np.uint64(stable_hash(*names)))


def drawn(keys: Keys, counters: npt.ArrayLike) -> Keys:
    """Number `counters` of the streams `keys`, uniform 64 bits each; the two are broadcast against each other."""
    return mixed(keys ^ (np.asarray(counters).astype(np.uint64) * _GOLDEN))


def uniform(keys: Keys, counters: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The same numbers in [0, 1), 53 bits each."""
    return (drawn(keys, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(limits: int | npt.NDArray[np.int64], numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Integers in 0 … limits - 1 out of numbers in [0, 1)."""
    return (numbers * limits).astype(np.int64)
