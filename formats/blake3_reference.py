"""BLAKE3, as its paper specifies it, with any length of output: the standard library only, simple before fast."""

import struct

MASK32 = (1 << 32) - 1
IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8


def rotate(word, bits):
    return (word >> bits | word << (32 - bits)) & MASK32


def compress(value, block, counter, length, flags):
    s = value + IV[:4] + [counter & MASK32, counter >> 32, length, flags]
    words = list(struct.unpack("<16I", block.ljust(64, b"\0")))

    def g(a, b, c, d, x, y):
        s[a] = (s[a] + s[b] + x) & MASK32
        s[d] = rotate(s[d] ^ s[a], 16)
        s[c] = (s[c] + s[d]) & MASK32
        s[b] = rotate(s[b] ^ s[c], 12)
        s[a] = (s[a] + s[b] + y) & MASK32
        s[d] = rotate(s[d] ^ s[a], 8)
        s[c] = (s[c] + s[d]) & MASK32
        s[b] = rotate(s[b] ^ s[c], 7)

    for _ in range(7):
        for i in range(4):
            g(i, 4 + i, 8 + i, 12 + i, words[2 * i], words[2 * i + 1])
        for i in range(4):
            g(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[8 + 2 * i], words[9 + 2 * i])
        words = [words[i] for i in PERMUTATION]
    return [s[i] ^ s[i + 8] for i in range(8)] + [s[i + 8] ^ value[i] for i in range(8)]


def node(data, chunk):
    """The last compression of a subtree, as arguments, so that the root can repeat it with counters."""
    if len(data) <= 1024:
        blocks = [data[i : i + 64] for i in range(0, len(data), 64)] or [b""]
        value = IV
        for i, block in enumerate(blocks):
            flags = (CHUNK_START if i == 0 else 0) | (CHUNK_END if i == len(blocks) - 1 else 0)
            last = (value, block, chunk, len(block), flags)
            value = compress(*last)[:8]
        return last
    chunks = (len(data) - 1) // 1024
    left = 1 << (chunks.bit_length() - 1)
    values = [compress(*node(part, at))[:8] for part, at in ((data[: left * 1024], chunk), (data[left * 1024 :], chunk + left))]
    return (IV, struct.pack("<16I", *values[0], *values[1]), 0, 64, PARENT)


def blake3_words(data):
    """The endless output as 64-bit little-endian words."""
    value, block, _, length, flags = node(data, 0)
    counter = 0
    while True:
        words = compress(value, block, counter, length, flags | ROOT)
        yield from struct.unpack("<8Q", struct.pack("<16I", *words))
        counter += 1


def blake3(data):
    """The digest: the first 32 bytes, in hexadecimal."""
    words = blake3_words(data)
    return struct.pack("<4Q", *(next(words) for _ in range(4))).hex()
