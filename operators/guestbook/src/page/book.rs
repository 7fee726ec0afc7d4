//! The entries: what may be one, and how two books become the same.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The most entries that a book holds. A full book takes no more: it never drops one.
pub const MAX_ENTRIES: usize = 1000;
/// The most characters of an entry.
pub const MAX_LENGTH: usize = 200;

/// What a guest left. Ordered by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// When it was left.
    pub at: Timestamp,
    /// Tells entries of one time apart.
    pub id: u64,
    /// What the guest wrote: one line, without control characters.
    pub text: String,
}

/// Why something is no entry. The messages are shown to guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing was written.
    Empty,
    /// It has so many characters.
    TooLong(usize),
    /// The book is full.
    Full,
}

/// The book: a set of entries that only grows, and the order in which this copy of it got them.
#[derive(Debug, Default)]
pub struct Book {
    entries: BTreeSet<Entry>,
    log: Vec<Entry>,
}

impl Book {
    /// Adds an entry, and gives how many this copy has got since.
    ///
    /// # Errors
    /// [`Refusal`], if the text is no entry or the book is full.
    pub fn add(&mut self, at: Timestamp, id: u64, text: &str) -> Result<usize, Refusal> {
        let text = clean(text)?;
        if self.log.len() >= MAX_ENTRIES {
            return Err(Refusal::Full);
        }
        self.merge([Entry { at, id, text }]);
        Ok(self.log.len())
    }

    /// Adds the entries of another copy that this one lacks; those that are none are left out.
    pub fn merge(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let is_entry = clean(&entry.text).is_ok_and(|text| text == entry.text);
            if is_entry && self.log.len() < MAX_ENTRIES && self.entries.insert(entry.clone()) {
                self.log.push(entry);
            }
        }
    }

    /// The entries, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// The entries that this copy has got after the first `count`, in the order in which it got them.
    pub fn after(&self, count: usize) -> &[Entry] {
        self.log.get(count..).unwrap_or_default()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }
}

/// One line of text, of which every run of white space and control characters is one space.
fn clean(text: &str) -> Result<String, Refusal> {
    let is_gap = |c: char| c.is_whitespace() || c.is_control() || is_invisible(c);
    let text = text.split(is_gap).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match text.chars().count() {
        0 => Err(Refusal::Empty),
        length if length > MAX_LENGTH => Err(Refusal::TooLong(length)),
        _ => Ok(text),
    }
}

/// Characters that show nothing themselves, turn around or hide what others wrote, or stand for what was no text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn texts(book: &Book) -> Vec<&str> {
        book.newest().map(|entry| entry.text.as_str()).collect()
    }

    #[test]
    fn what_is_an_entry() {
        let check = |text: &str, expect: Result<&str, Refusal>| {
            assert_eq!(clean(text), expect.map(str::to_owned), "{text:?}");
        };
        check("Ada", Ok("Ada"));
        check("  1 Main\r\nStreet\t\0 ", Ok("1 Main Street"));
        check("이순신 🐄", Ok("이순신 🐄"));
        check("\u{202e}evil\u{202c}", Ok("evil"));
        check(" \u{feff}\n", Err(Refusal::Empty));
        check(&"é".repeat(200), Ok(&"é".repeat(200)));
        check(&"é".repeat(201), Err(Refusal::TooLong(201)));
    }

    #[test]
    fn a_full_book_keeps_what_it_has() {
        let mut book = Book::default();
        for number in 0..1000 {
            assert_eq!(book.add(at(number), 0, "x"), Ok(book.len()));
        }
        assert_eq!(book.add(at(0), 1, "y"), Err(Refusal::Full));
        book.merge([Entry { at: at(0), id: 1, text: "y".into() }]);
        assert_eq!(book.len(), MAX_ENTRIES);
    }

    #[test]
    fn copies_become_the_same_whoever_gives() {
        let (mut one, mut two) = (Book::default(), Book::default());
        one.add(at(1), 1, "first").unwrap();
        two.add(at(3), 2, "third").unwrap();
        one.add(at(2), 3, "second").unwrap();
        two.merge(one.after(0).to_vec());
        one.merge(two.after(0).to_vec());
        one.merge(two.after(1).to_vec());
        assert_eq!((texts(&one), one.len()), (vec!["third", "second", "first"], 3));
        assert_eq!(texts(&one), texts(&two));
        assert_eq!((two.after(1).len(), two.after(3).len(), two.after(9).len()), (2, 0, 0));
    }

    #[test]
    fn what_is_no_entry_is_not_taken_over() {
        let mut book = Book::default();
        let entry = |text: &str| Entry { at: at(1), id: 1, text: text.into() };
        book.merge([entry(""), entry("two\nlines"), entry(&"x".repeat(201)), entry("good")]);
        assert_eq!(texts(&book), ["good"]);
    }
}
