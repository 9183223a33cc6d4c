//! Inputs that look like sound ones but for some damage: a seed of the corpus, or two spliced, after a few mutations that
//! break parsers in practice. The same (seed, number) gives the same input everywhere, so a failure is told by two numbers.

/// No input grows beyond this many bytes.
const MOST_BYTES: usize = 1 << 20;

/// Numbers at which lengths, counts and signs go wrong.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    7,
    16,
    63,
    127,
    128,
    255,
    256,
    32_767,
    65_535,
    1 << 24,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`; 0 where that is 0.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// A short range within `length`, now and then a long one.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let most = if self.below(4) == 0 { length } else { 16 };
        let end = (start + self.below(most) + 1).min(length);
        start..end.max(start)
    }
}

/// The input of this number. `tokens`: words of the target's language.
pub fn input(corpus: &[Vec<u8>], tokens: &[&str], seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
    random.next();
    let mut bytes = random.pick(corpus).cloned().unwrap_or_default();
    // The first inputs are the seeds themselves, which shows that the target takes them.
    if let Some(seed) = usize::try_from(number).ok().and_then(|n| corpus.get(n)) {
        return seed.clone();
    }
    let rounds = 1 + (random.next().trailing_zeros() as usize) * 2 + random.below(2);
    for _ in 0..rounds {
        mutate(&mut bytes, corpus, tokens, &mut random);
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], tokens: &[&str], random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(14) {
        0 | 1 => change(bytes, at, |byte| *byte ^= 1 << random.below(8)),
        2 => change(bytes, at, |byte| *byte = random.next() as u8),
        3 => change(bytes, at, |byte| *byte = random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'0', b'"']).copied().unwrap_or(0)),
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(random.range(bytes.len()))),
        6 => {
            let slice = bytes[random.range(bytes.len())].to_vec();
            insert(bytes, at, &slice);
        }
        7 => {
            // Repeated often enough for what recurses to run out of stack.
            let slice = bytes[random.range(bytes.len())].to_vec();
            let times = 1 << random.below(15);
            if slice.len() * times <= MOST_BYTES {
                insert(bytes, at, &slice.repeat(times));
            }
        }
        8 | 9 => number(bytes, at, random),
        10 | 11 => {
            let token = random.pick(tokens).map_or(&b""[..], |token| token.as_bytes());
            if random.below(2) == 0 {
                insert(bytes, at, token);
            } else {
                let end = (at + token.len()).min(bytes.len());
                bytes.splice(at..end, token.iter().copied());
            }
        }
        12 => {
            let other = random.pick(corpus).map_or(&[][..], Vec::as_slice);
            let piece = &other[random.range(other.len())];
            let end = (at + random.below(2) * piece.len()).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        _ => {
            let (from, to) = (random.range(bytes.len()), random.below(bytes.len()));
            let slice = bytes[from].to_vec();
            let end = (to + slice.len()).min(bytes.len());
            bytes.splice(to..end, slice);
        }
    }
}

fn change(bytes: &mut [u8], at: usize, change: impl FnOnce(&mut u8)) {
    if let Some(byte) = bytes.get_mut(at) {
        change(byte);
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if bytes.len() + piece.len() <= MOST_BYTES {
        bytes.splice(at..at, piece.iter().copied());
    }
}

/// Puts another number in place of a binary or decimal one.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let value = random.pick(&NUMBERS).copied().unwrap_or(0);
    let value = if random.below(4) == 0 { value.wrapping_add(random.next() % 5).wrapping_sub(2) } else { value };
    let digits = bytes[at..].iter().position(u8::is_ascii_digit).filter(|_| random.below(2) == 0);
    if let Some(start) = digits.map(|digits| at + digits) {
        let end = bytes[start..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |length| start + length);
        bytes.splice(start..end, value.to_string().into_bytes());
        return;
    }
    let width = 1 << random.below(4);
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    if random.below(3) == 0 {
        // A step of one from what is there.
        let (first, by) = (place[0], if random.below(2) == 0 { 1 } else { 255 });
        place[0] = first.wrapping_add(by);
    } else if random.below(2) == 0 {
        place.copy_from_slice(&value.to_le_bytes()[..width]);
    } else {
        place.copy_from_slice(&value.to_be_bytes()[8 - width..]);
    }
}
