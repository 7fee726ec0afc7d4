//! Entries, their validation, and the merging of two books.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The maximum number of entries. A full book refuses further entries and never drops any.
pub const MAX_ENTRIES: usize = 1000;
/// The maximum number of characters of an entry.
pub const MAX_LENGTH: usize = 200;

/// An entry of a guest, ordered by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The time of the entry.
    pub at: Timestamp,
    /// A random number that distinguishes entries with the same time.
    pub id: u64,
    /// The text: one line without control characters.
    pub text: String,
}

/// An error in an entry, which is shown to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The entry is empty.
    Empty,
    /// The entry has this many characters.
    TooLong(usize),
    /// The book is full.
    Full,
}

/// The book: a set of entries that only grows, and the order in which this replica received them.
#[derive(Debug, Default)]
pub struct Book {
    entries: BTreeSet<Entry>,
    log: Vec<Entry>,
}

impl Book {
    /// Adds an entry, and returns the number of entries that this replica has received.
    ///
    /// # Errors
    /// [`EntryError`], if the text is invalid or the book is full.
    pub fn add(&mut self, at: Timestamp, id: u64, text: &str) -> Result<usize, EntryError> {
        let text = clean(text)?;
        if self.log.len() >= MAX_ENTRIES {
            return Err(EntryError::Full);
        }
        self.merge([Entry { at, id, text }]);
        Ok(self.log.len())
    }

    /// Adds the entries of another replica that are missing here. Invalid entries are skipped.
    pub fn merge(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let is_entry = clean(&entry.text).is_ok_and(|text| text == entry.text);
            if is_entry && self.log.len() < MAX_ENTRIES && self.entries.insert(entry.clone()) {
                self.log.push(entry);
            }
        }
    }

    /// Returns the entries, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// Returns the entries that this replica received after the first `count`, in that order.
    pub fn after(&self, count: usize) -> &[Entry] {
        self.log.get(count..).unwrap_or_default()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }
}

/// Returns the text as one line, in which every run of whitespace and control characters is a single space.
fn clean(text: &str) -> Result<String, EntryError> {
    let is_gap = |c: char| c.is_whitespace() || c.is_control() || is_invisible(c);
    let text = text.split(is_gap).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match text.chars().count() {
        0 => Err(EntryError::Empty),
        length if length > MAX_LENGTH => Err(EntryError::TooLong(length)),
        _ => Ok(text),
    }
}

/// Returns whether a character is invisible, changes the direction of text, hides other characters, or stands for
/// undecodable text.
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
    fn entries_are_cleaned_and_limited() {
        let check = |text: &str, expect: Result<&str, EntryError>| {
            assert_eq!(clean(text), expect.map(str::to_owned), "{text:?}");
        };
        check("Ada", Ok("Ada"));
        check("  1 Main\r\nStreet\t\0 ", Ok("1 Main Street"));
        check("이순신 🐄", Ok("이순신 🐄"));
        check("\u{202e}evil\u{202c}", Ok("evil"));
        check(" \u{feff}\n", Err(EntryError::Empty));
        check(&"é".repeat(200), Ok(&"é".repeat(200)));
        check(&"é".repeat(201), Err(EntryError::TooLong(201)));
    }

    #[test]
    fn a_full_book_keeps_what_it_has() {
        let mut book = Book::default();
        for number in 0..1000 {
            assert_eq!(book.add(at(number), 0, "x"), Ok(book.len()));
        }
        assert_eq!(book.add(at(0), 1, "y"), Err(EntryError::Full));
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
    fn invalid_entries_are_not_merged() {
        let mut book = Book::default();
        let entry = |text: &str| Entry { at: at(1), id: 1, text: text.into() };
        book.merge([entry(""), entry("two\nlines"), entry(&"x".repeat(201)), entry("good")]);
        assert_eq!(texts(&book), ["good"]);
    }
}
