"""A seeded mutational fuzzer: input number i of a reader is a function of seed, reader and i alone."""

import functools
import io
import random
import zipfile
from collections.abc import Callable, Sequence

NUMBERS = (
    b"0 -0 1 -1 0.5 1e-300 1e300 1e400 -1e400 5e-324 1e-400 nan NaN inf -inf Infinity 1e 1. .5 . - + 0x10 1_000 007 "
    b"255 256 65536 2147483648 4294967296 9223372036854775807 9223372036854775808 18446744073709551616 "
    b"99999999999999999999999999 1e99999999 3.4.5 1,5 \xd9\xa3 true null"
).split()
SNIPPETS = {
    "newick": b"( ) , : ; [ ] ' '' [& [&W ]; ():1 (a:1,b:1) (a:1,b:1):1 _ \\ \" {} :0 :: ,, () '' 'a b' [[]]".split(),
    "nexus": b"#NEXUS BEGIN END; TREES; TAXA; TRANSLATE TREE UTREE TAXLABELS DIMENSIONS = [&R] [&W] [&W 1/0] ; , ' ( ) "
    b"tree_1 NTAX=3; 0 1 2 begin trees; tree".split(),
    "table": [
        b",",
        b"\t",
        b";",
        b'"',
        b'""',
        b"\n",
        b"\r",
        b"\r\n",
        b"\x00",
        b"\xef\xbb\xbf",
        b" ",
        b"NA",
        b"''",
        b"\xe2\x80\xa8",
    ],
    "toml": b"[ ] [[ ]] = . \" \"\"\" ' ''' # { } , [data] [cohort] [model] seed thresholds 2009-01-01"
    b" 1979-05-27T07:32:00Z path n_iter true false inf nan".split(),
    "bytes": [
        b"\x00",
        b"\xff",
        b"PK\x03\x04",
        b"PK\x01\x02",
        b"PK\x05\x06",
        b"\x93NUMPY",
        b"PAR1",
        b"|O",
        b"<f8",
        b"(",
        b")",
    ],
}


def flip(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def delete(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, length = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 64, 1024))
    return data[:start] + data[start + length :]


def duplicate(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, length = rng.randrange(len(data)), rng.choice((1, 2, 8, 64))
    return data[:start] + data[start : start + length] * rng.choice((2, 2, 3, 20)) + data[start + length :]


def move(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, length, to = rng.randrange(len(data)), rng.choice((1, 4, 16, 64)), rng.randrange(len(data))
    return data[:to] + data[start : start + length] + data[to:]


def insert(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(words) + data[place:]


def replace_number(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Put an extreme number in place of a run of digits."""
    digits = [i for i, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    if not digits:
        return insert(rng, data, NUMBERS)
    first = last = rng.choice(digits)
    while first > 0 and data[first - 1] in b"0123456789.eE+-":
        first -= 1
    while last < len(data) and data[last] in b"0123456789.eE+-":
        last += 1
    return data[:first] + rng.choice(NUMBERS) + data[last:]


def nest(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Repeat one mark hundreds or thousands of times: deep nesting, long runs."""
    place = rng.randrange(len(data) + 1)
    return (
        data[:place]
        + rng.choice((b"(", b"[", b"'", b"((a:1,b:1):1,", b",", *words)) * rng.choice((30, 300, 3000))
        + data[place:]
    )


def truncate(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


CHANGES: tuple[Callable[..., bytes], ...] = (
    flip, flip, delete, delete, duplicate, move, insert, insert, insert, replace_number, replace_number, truncate,
)  # fmt: skip


def mutate(rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One to eight changes of a file of the corpus, or of two spliced together."""
    data = rng.choice(corpus)
    if rng.random() < 0.1:
        other = rng.choice(corpus)
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    for _ in range(min(rng.randrange(1, 9), rng.randrange(1, 9))):
        if not data:
            break
        data = (nest if rng.random() < 0.004 else rng.choice(CHANGES))(rng, data, words)
    return data


@functools.lru_cache(maxsize=8)
def unzip(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def rezip(members: dict[str, bytes]) -> bytes:
    """An archive with right checksums of its own, so that what is wrong lies deeper."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()
