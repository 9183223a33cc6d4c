#!/usr/bin/env python3
"""Independent reference of order.md, partition.md and random.md: the standard library only, simple before fast.

    python3 formats/order_reference.py            checks formats/vectors/{order,partition,random}.json
    python3 formats/order_reference.py --write    writes them anew
"""

import json
import struct
import sys
from pathlib import Path

from blake3_reference import blake3_words

MASK64 = (1 << 64) - 1


# Canonical encoding (canonical.md) of what is needed here.


def encode(value):
    if isinstance(value, int):
        return (b"\3" if value < 1 << 63 else b"\4") + struct.pack(">Q", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\6" + struct.pack(">Q", len(data)) + data
    return b"\7" + struct.pack(">Q", len(value)) + b"".join(map(encode, value))


def stream(domain, value):
    return blake3_words(b"forebay/v1/" + domain.encode() + b"\0" + encode(value))


# random.md


class Random:
    def __init__(self, seed, epoch, key, step, occurrence):
        self.words = stream("random", [seed, epoch, key, step, occurrence])

    def word(self):
        return next(self.words)

    def below(self, n):
        return self.word() * n >> 64

    def unit(self):
        return (self.word() >> 11) / (1 << 53)

    def between(self, low, high):
        return low + (high - low) * self.unit()


# order.md


def mix(word):
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK64
    return word ^ word >> 31


class Epoch:
    def __init__(self, rows, seed, epoch, lanes, block, shuffle):
        self.rows, self.lanes, self.block, self.shuffle = rows, lanes, block, shuffle
        self.n = sum(rows)
        self.shards = list(range(len(rows)))
        if not shuffle:
            self.lanes = 1
            return
        words = stream("shard-order", [seed, epoch])
        for last in range(len(rows) - 1, 0, -1):
            other = next(words) * (last + 1) >> 64
            self.shards[last], self.shards[other] = self.shards[other], self.shards[last]
        words = stream("block-order", [seed, epoch])
        self.keys = [next(words) for _ in range(8)]

    def permute(self, lane, shifted, number, size, index):
        if size < 2:
            return index
        tweak = mix((mix(2 * lane + shifted) + number) & MASK64)
        keys = [mix((key + tweak) & MASK64) for key in self.keys]
        bits = (size - 1).bit_length()
        low_bits = bits // 2
        high_bits = bits - low_bits
        while True:
            high, low = index >> low_bits, index % (1 << low_bits)
            for i in range(0, 8, 2):
                low ^= mix(high ^ keys[i]) % (1 << low_bits)
                high ^= mix(low ^ keys[i + 1]) % (1 << high_bits)
            index = high << low_bits | low
            if index < size:
                return index

    def blocks(self, rows, shifted):
        """(number, start, end) of each block of a lane."""
        half = self.block // 2 if shifted else 0
        edges = [0] if half else []
        edges += range(half, rows, self.block)
        number = 0 if half or not shifted else 1
        ends = edges[1:] + [rows]
        return [(number + i, start, min(end, rows)) for i, (start, end) in enumerate(zip(edges, ends))]

    def at(self, position):
        line = position
        if self.shuffle:
            lane, offset = position % self.lanes, position // self.lanes
            share, longer = divmod(self.n, self.lanes)
            rows = share + (lane < longer)
            for shifted in (1, 0):
                for number, start, end in self.blocks(rows, shifted):
                    if start <= offset < end:
                        offset = start + self.permute(lane, shifted, number, end - start, offset - start)
                        break
            line = lane * share + min(lane, longer) + offset
        for shard in self.shards:
            if line < self.rows[shard]:
                return [shard, line]
            line -= self.rows[shard]

    def batch(self, position, batch, world_size, tail):
        """The shares of all ranks, and the next position."""
        following = min(position + batch, self.n)
        if following == position or tail == "drop" and following - position < batch:
            return None
        positions = sorted(range(position, following), key=lambda p: (p % self.lanes, p))
        count = listed = len(positions)
        if tail == "pad":
            listed = batch
        ranks = []
        for rank in range(world_size):
            indices = range(listed * rank // world_size, listed * (rank + 1) // world_size)
            rows = [self.at(positions[i % count]) for i in indices]
            ranks.append({"rows": rows, "padding": sum(i >= count for i in indices)})
        return {"ranks": ranks, "next": following}


# partition.md


def entry_hash(key):
    return struct.unpack(">Q", struct.pack("<Q", next(stream("entry-order", key))))[0]


def within(entries, limits):
    return len(entries) <= limits[0] and sum(e["bytes"] for e in entries) <= limits[1]


def by_bucket(entries, bit, limits):
    small = [e for e in entries if e["bytes"] <= limits[1] // 8]
    if bit == 64 or within(small, limits):
        return [small] * bool(small) + [[e] for e in entries if e not in small]
    parts = [[e for e in entries if (e["hash"] >> (63 - bit)) & 1 == b] for b in (0, 1)]
    return by_bucket(parts[0], bit + 1, limits) + by_bucket(parts[1], bit + 1, limits)


def by_hash(entries, limits):
    if len(entries) < 2 or within(entries, limits):
        return [entries] * bool(entries)
    reverse = lambda e: int(f"{e['hash']:064b}"[::-1], 2)
    after = min(range(len(entries) - 1), key=lambda i: reverse(entries[i])) + 1
    return by_hash(entries[:after], limits) + by_hash(entries[after:], limits)


def from_front(entries, limits):
    parts = []
    for e in entries:
        if parts and within(parts[-1] + [e], limits):
            parts[-1].append(e)
        else:
            parts.append([e])
    return parts


def partition(entries, layout, limits):
    entries = [dict(e, hash=entry_hash(e["key"])) for e in entries]
    if layout == "hash":
        parts = by_bucket(sorted(entries, key=lambda e: (e["hash"], e["key"].encode())), 0, limits)
    elif layout == "key":
        parts = by_hash(sorted(entries, key=lambda e: e["key"].encode()), limits)
    else:
        containers = []
        for e in entries:
            if containers and e["file"] is not None and containers[-1][0]["file"] == e["file"]:
                containers[-1].append(e)
            else:
                containers.append([e])
        cut = from_front if layout == "front" else by_hash
        parts = [part for container in containers for part in cut(container, limits)]
    return [[e["key"] for e in part] for part in parts]


# Vectors


def order_vectors():
    cases = []
    for rows, seed, epoch, lanes, block, shuffle in [
        ([], 0, 0, 16, 64, True),
        ([1], 0, 0, 16, 64, True),
        ([3, 0, 2], 7, 1, 16, 64, False),
        ([5, 0, 7, 1], 7, 1, 3, 4, True),
        ([5, 0, 7, 1], 7, 2, 3, 4, True),
        ([5, 0, 7, 1], 8, 1, 3, 4, True),
        ([20, 30, 17], MASK64, MASK64, 4, 7, True),
        ([11], 1, 0, 16, 64, True),
        ([40, 1, 60, 33], 42, 3, 2, 16, True),
        ([10, 20], 3, 0, 5, 1, True),
        ([300, 200], 5, 9, 1, 128, True),
    ]:
        epoch_of = Epoch(rows, seed, epoch, lanes, block, shuffle)
        case = dict(rows=rows, seed=seed, epoch=epoch, lanes=lanes, block=block, shuffle=shuffle)
        case["order"] = [epoch_of.at(p) for p in range(epoch_of.n)]
        batches = [(0, 8, 1, "short"), (5, 8, 3, "pad"), (epoch_of.n - 3, 8, 3, "pad"), (epoch_of.n - 3, 8, 2, "drop")]
        case["batches"] = []
        for position, batch, world_size, tail in batches:
            position = max(position, 0)
            took = epoch_of.batch(position, batch, world_size, tail) if position <= epoch_of.n else None
            case["batches"].append(dict(position=position, batch=batch, world_size=world_size, tail=tail, result=took))
        cases.append(case)
    return cases


def random_vectors():
    cases = []
    for seed, epoch, key, step, occurrence in [
        (0, 0, "a.jpg", "image.random_crop", 0),
        (0, 1, "a.jpg", "image.random_crop", 0),
        (MASK64, 3, "träin/b c.png#7", "image.random_flip", 2),
        (5, 0, "long/" * 300, "image.random_resized_crop", 0),
    ]:
        case = dict(seed=seed, epoch=epoch, key=key, step=step, occurrence=occurrence)
        make = lambda: Random(seed, epoch, key, step, occurrence)
        draws = make()
        case["words"] = [draws.word() for _ in range(10)]
        draws = make()
        case["below"] = [[n, draws.below(n)] for n in (0, 1, 2, 10, 1000, MASK64)]
        draws = make()
        # The exact double: its bits as an integer.
        case["unit"] = [struct.unpack("<Q", struct.pack("<d", draws.unit()))[0] for _ in range(4)]
        draws = make()
        between = [draws.between(low, high) for low, high in ((-1.5, 2.25), (0.08, 1.0))]
        case["between"] = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in between]
        cases.append(case)
    return cases


def partition_vectors():
    words = stream("random", "partition vectors")
    cases = []
    for layout in ("hash", "key", "front", "keyed"):
        for count, limits in ((0, [10, 1000]), (60, [10, 1 << 40]), (60, [1000, 1000]), (40, [5, 640])):
            entries = []
            for i in range(count):
                size = next(words) % 100 if next(words) % 8 else next(words) % 1500
                file = None if layout in ("hash", "key") or i % 25 == 24 else f"{i // 25}.tar"
                entries.append(dict(key=f"class-{next(words) % 5}/é{i}.jpg", file=file, bytes=size))
            parts = partition(entries, layout, limits)
            assert sorted(k for p in parts for k in p) == sorted(e["key"] for e in entries)
            cases.append(dict(layout=layout, max_entries=limits[0], max_bytes=limits[1], entries=entries, partitions=parts))
    return cases


def main():
    vectors = {"order": order_vectors, "partition": partition_vectors, "random": random_vectors}
    for name, make in vectors.items():
        path = Path(__file__).parent / "vectors" / f"{name}.json"
        cases = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in make())
        text = f"[\n{cases}\n]\n"
        if "--write" in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif json.loads(path.read_text(encoding="utf-8")) != json.loads(text):
            sys.exit(f"{path} isn't what {Path(__file__).name} computes")
        else:
            print(f"{path.name}: equal")


if __name__ == "__main__":
    main()
