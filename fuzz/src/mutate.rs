//! Random variations of valid input.

use kubewright_apimachinery::random::Random;

/// The greatest length of an input, in bytes.
const LONGEST: usize = 16 << 10;
/// The greatest number of changes of one input.
const CHANGES: u64 = 6;

/// Pieces of text that are special to some parser.
const PIECES: [&str; 44] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e999",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0.1",
    "\"\"",
    "\"a\"",
    "{}",
    "[]",
    "{\"a\":",
    "[",
    "]",
    "}",
    "{",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{fffd}",
    "\u{10ffff}",
    "(",
    ")",
    "&&",
    "||",
    "!",
    "==",
    "in",
    "notin",
    "%",
    "..",
    "/",
    "~1",
    "$patch",
    "$setElementOrder/a",
    "$deleteFromPrimitiveList/a",
    "$retainKeys",
    "-",
];

/// Makes inputs from a corpus. The same seed makes the same inputs.
#[derive(Debug)]
pub(crate) struct Mutator {
    corpus: Vec<Vec<u8>>,
    random: Random,
}

impl Mutator {
    pub(crate) fn new(corpus: Vec<Vec<u8>>, random: Random) -> Self {
        Self { corpus, random }
    }

    /// Returns the next input.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut input = self.any().to_vec();
        for _ in 0..=self.random.u64() % CHANGES {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    /// Returns a number below a bound, or zero.
    fn below(&self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.random.u64() % bound).unwrap_or_default()
    }

    fn any(&self) -> &[u8] {
        self.corpus.get(self.below(self.corpus.len())).map_or(&[], Vec::as_slice)
    }

    /// Returns the bounds of a piece of an input.
    fn piece(&self, length: usize) -> (usize, usize) {
        let begin = self.below(length + 1);
        let longest = if self.below(4) == 0 { length - begin } else { (length - begin).min(16) };
        (begin, begin + self.below(longest + 1))
    }

    fn change(&self, input: &mut Vec<u8>) {
        let (begin, end) = self.piece(input.len());
        match self.below(8) {
            0 => drop(input.drain(begin..end)),
            // A piece again, sometimes many times, which makes it deep or long.
            1 => {
                let times = if self.below(8) == 0 { 200 } else { 1 };
                let piece = input[begin..end].repeat(times);
                drop(input.splice(begin..begin, piece));
            }
            2 => {
                let other = self.any();
                let (from, to) = self.piece(other.len());
                drop(input.splice(begin..end, other[from..to].iter().copied()));
            }
            3 => {
                let bit = 1u8 << self.below(8);
                if let Some(byte) = input.get_mut(begin) {
                    *byte ^= bit;
                }
            }
            4 => {
                let byte = self.random.u64().to_le_bytes()[0];
                input.insert(begin, byte);
            }
            5 => {
                let (from, to) = self.piece(input.len());
                let piece = input[from..to].to_vec();
                drop(input.splice(begin..end, piece));
            }
            _ => {
                let piece = PIECES[self.below(PIECES.len())];
                let times = if self.below(8) == 0 { 300 } else { 1 };
                // Half of the pieces replace something of about their length, so that the rest stays valid.
                let end = if self.below(2) == 0 { begin } else { end };
                drop(input.splice(begin..end, piece.repeat(times).into_bytes()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_bounded_and_repeatable() {
        let corpus = || vec![b"{\"a\": [1, 2]}".to_vec(), Vec::new()];
        let make = |seed| {
            let mut mutator = Mutator::new(corpus(), Random::seeded(seed));
            (0..500).map(|_| mutator.next()).collect::<Vec<_>>()
        };
        let inputs = make(3);
        assert_eq!(inputs, make(3));
        assert_ne!(inputs, make(4));
        assert!(inputs.iter().all(|input| input.len() <= LONGEST));
        assert!(inputs.iter().any(|input| input.len() > 1000), "none is long");
        assert!(inputs.iter().any(|input| serde_json::from_slice::<serde_json::Value>(input).is_ok()), "none is valid");
    }
}
