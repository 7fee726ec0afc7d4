//! The syntax of Go's regular expressions, to report the same errors (<https://pkg.go.dev/regexp/syntax>; the errors
//! are those of Go 1.26 with its flag `Perl`).
//!
//! Only what Go refuses because of its size isn't found here: an expression that is too large or nested too deeply.

use regex::Regex;

/// The maximum number of repetitions, also of nested ones together.
const REPEATS: u64 = 1000;

/// The names of classes within brackets, as in `[:alpha:]`.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Checks that Go can parse a pattern.
///
/// # Errors
/// Returns Go's message.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let parser = Parser { whole: pattern, rest: pattern, groups: vec![Group::default()] };
    parser.parse().map_err(|Error(why, part)| format!("error parsing regexp: {why}: `{part}`"))
}

/// What is wrong, and the part of the pattern that it is about.
struct Error<'a>(&'static str, &'a str);

type Parsed<'a, T = ()> = Result<T, Error<'a>>;

const ESCAPE: &str = "invalid escape sequence";
const RANGE: &str = "invalid character class range";
const REPEAT: &str = "invalid repeat count";
const ARGUMENT: &str = "missing argument to repetition operator";

/// The part of a pattern within parentheses, or the whole one.
#[derive(Default)]
struct Group {
    /// The number of repetitions within the last item of the present alternative; `None` if it has no item.
    last: Option<u64>,
    /// The greatest number of repetitions within the other items.
    greatest: u64,
}

struct Parser<'a> {
    whole: &'a str,
    rest: &'a str,
    /// The groups that are open, the whole pattern first.
    groups: Vec<Group>,
}

/// Returns the start of `text` up to `rest`, which is its end.
fn up_to<'a>(text: &'a str, rest: &str) -> &'a str {
    &text[..text.len() - rest.len()]
}

/// Removes the first character of a text.
fn next(text: &mut &str) -> Option<char> {
    let mut chars = text.chars();
    let first = chars.next()?;
    *text = chars.as_str();
    Some(first)
}

impl<'a> Parser<'a> {
    fn parse(mut self) -> Parsed<'a> {
        // The repetition directly before the present place.
        let mut repetition = None;
        while let Some(first) = self.rest.chars().next() {
            let before = repetition.take();
            match first {
                '(' if self.rest.starts_with("(?") => self.special_group()?,
                '(' => {
                    self.rest = &self.rest[1..];
                    self.groups.push(Group::default());
                }
                '|' => {
                    self.rest = &self.rest[1..];
                    self.end_item();
                }
                ')' => self.end_group()?,
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    let start = self.rest;
                    self.rest = &self.rest[1..];
                    self.repeat(start, before, 1)?;
                    repetition = Some(start);
                }
                '{' => match counts(self.rest) {
                    Some((least, most, rest)) => {
                        let start = self.rest;
                        self.rest = rest;
                        let is_valid = least <= REPEATS && most.is_none_or(|most| least <= most && most <= REPEATS);
                        if !is_valid {
                            return Err(Error(REPEAT, up_to(start, rest)));
                        }
                        self.repeat(start, before, most.unwrap_or(least))?;
                        repetition = Some(start);
                    }
                    None => {
                        self.rest = &self.rest[1..];
                        self.item(1);
                    }
                },
                '\\' => self.escaped()?,
                _ => {
                    next(&mut self.rest);
                    self.item(1);
                }
            }
        }
        if self.groups.len() > 1 { Err(Error("missing closing )", self.whole)) } else { Ok(()) }
    }

    /// Adds an item with this number of repetitions to the present group.
    fn item(&mut self, repeats: u64) {
        if let Some(group) = self.groups.last_mut() {
            group.greatest = group.greatest.max(group.last.unwrap_or(1));
            group.last = Some(repeats);
        }
    }

    /// Begins another alternative.
    fn end_item(&mut self) {
        if let Some(group) = self.groups.last_mut() {
            group.greatest = group.greatest.max(group.last.take().unwrap_or(1));
        }
    }

    fn end_group(&mut self) -> Parsed<'a> {
        if self.groups.len() == 1 {
            return Err(Error("unexpected )", self.whole));
        }
        self.rest = &self.rest[1..];
        let group = self.groups.pop().unwrap_or_default();
        self.item(group.greatest.max(group.last.unwrap_or(1)).max(1));
        Ok(())
    }

    /// Repeats the last item. The operator is from `start` to the present place, and `before` is where a repetition
    /// directly before it starts.
    fn repeat(&mut self, start: &'a str, before: Option<&'a str>, count: u64) -> Parsed<'a> {
        self.rest = self.rest.strip_prefix('?').unwrap_or(self.rest);
        let operator = up_to(start, self.rest);
        if let Some(before) = before {
            return Err(Error("invalid nested repetition operator", up_to(before, self.rest)));
        }
        let Some(last) = self.groups.last_mut().and_then(|group| group.last.as_mut()) else {
            return Err(Error(ARGUMENT, operator));
        };
        let repeats = if count == 0 { 1 } else { last.saturating_mul(count) };
        if count > 1 && repeats > REPEATS {
            return Err(Error(REPEAT, operator));
        }
        *last = repeats;
        Ok(())
    }

    /// Reads what begins with `(?`: a group with a name or without a number, or flags.
    fn special_group(&mut self) -> Parsed<'a> {
        let start = self.rest;
        let is_named = start.len() > 4 && start.starts_with("(?P<") || start.len() > 3 && start.starts_with("(?<");
        if is_named {
            let Some(end) = start.find('>') else { return Err(Error("invalid named capture", start)) };
            let name = start[..end].split_once('<').map_or("", |(_, name)| name);
            if name.is_empty() || !name.chars().all(|char| char == '_' || char.is_ascii_alphanumeric()) {
                return Err(Error("invalid named capture", &start[..=end]));
            }
            self.rest = &start[end + 1..];
            self.groups.push(Group::default());
            return Ok(());
        }
        let mut rest = &start[2..];
        let (mut negative, mut has_flag) = (false, false);
        while let Some(char) = next(&mut rest) {
            match char {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !negative => (negative, has_flag) = (true, false),
                ':' | ')' if !negative || has_flag => {
                    self.rest = rest;
                    if char == ':' {
                        self.groups.push(Group::default());
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(Error("invalid or unsupported Perl syntax", up_to(start, rest)))
    }

    /// Reads what begins with a backslash outside of a class.
    fn escaped(&mut self) -> Parsed<'a> {
        let start = self.rest;
        match start.as_bytes().get(1) {
            Some(b'C') => return Err(Error(ESCAPE, &start[..2])),
            Some(b'Q') => {
                let (literal, rest) = start[2..].split_once(r"\E").unwrap_or((&start[2..], ""));
                literal.chars().for_each(|_| self.item(1));
                self.rest = rest;
                return Ok(());
            }
            Some(b'A' | b'b' | b'B' | b'z') => self.rest = &start[2..],
            _ => {
                if !self.escaped_class()? {
                    escape(&mut self.rest)?;
                }
            }
        }
        self.item(1);
        Ok(())
    }

    /// Reads a class such as `\d` or `\p{Greek}`. Returns whether there is one.
    fn escaped_class(&mut self) -> Parsed<'a, bool> {
        let start = self.rest;
        match start.as_bytes().get(1).filter(|_| start.starts_with('\\')) {
            Some(b'd' | b's' | b'w' | b'D' | b'S' | b'W') => {
                self.rest = &start[2..];
                return Ok(true);
            }
            Some(b'p' | b'P') => {}
            _ => return Ok(false),
        }
        let mut rest = &start[2..];
        let name = match next(&mut rest) {
            Some('{') => {
                let Some(end) = start.find('}') else { return Err(Error(RANGE, start)) };
                rest = &start[end + 1..];
                &start[3..end]
            }
            _ => &up_to(start, rest)[2..],
        };
        if !is_property(name.strip_prefix('^').unwrap_or(name)) {
            return Err(Error(RANGE, up_to(start, rest)));
        }
        self.rest = rest;
        Ok(true)
    }

    fn class(&mut self) -> Parsed<'a> {
        let start = self.rest;
        self.rest = start[1..].strip_prefix('^').unwrap_or(&start[1..]);
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            if self.named_class()? || self.escaped_class()? {
                continue;
            }
            let range = self.rest;
            let low = self.class_char(start)?;
            if self.rest.len() >= 2 && self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.rest = &self.rest[1..];
                let high = self.class_char(start)?;
                if high < low {
                    return Err(Error(RANGE, up_to(range, self.rest)));
                }
            }
        }
        self.rest = &self.rest[1..];
        self.item(1);
        Ok(())
    }

    /// Reads a class such as `[:alpha:]`. Returns whether there is one.
    fn named_class(&mut self) -> Parsed<'a, bool> {
        let start = self.rest;
        let Some(end) = start.strip_prefix("[:").and_then(|inner| inner.find(":]")) else { return Ok(false) };
        let name = &start[2..2 + end];
        if !CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(Error(RANGE, &start[..end + 4]));
        }
        self.rest = &start[end + 4..];
        Ok(true)
    }

    /// Reads a character of the class that begins at `class`.
    fn class_char(&mut self, class: &'a str) -> Parsed<'a, char> {
        if self.rest.starts_with('\\') {
            return escape(&mut self.rest);
        }
        next(&mut self.rest).ok_or(Error("missing closing ]", class))
    }
}

/// Reads the counts of a repetition such as `{2,5}`: the minimum, the maximum, and the rest of the text. Returns `None`
/// if the brace doesn't begin a repetition, but is a literal.
fn counts(text: &str) -> Option<(u64, Option<u64>, &str)> {
    let (counts, _) = text.strip_prefix('{')?.split_once('}')?;
    let rest = &text[counts.len() + 2..];
    // A number that is too large is still a number.
    let number = |digits: &str| {
        let is_number = !digits.is_empty()
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let (least, most) = match counts.split_once(',') {
        None => (number(counts)?, Some(number(counts)?)),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((least, most, rest))
}

/// Reads an escaped character.
fn escape<'a>(text: &mut &'a str) -> Parsed<'a, char> {
    let (start, mut rest) = (*text, &text[1..]);
    let Some(char) = next(&mut rest) else { return Err(Error("trailing backslash at end of expression", "")) };
    let digit = |rest: &mut &'a str, radix| next(rest).map(|digit| digit.to_digit(radix));
    let found = match char {
        '0'..='7' if char == '0' || rest.starts_with(|next: char| matches!(next, '0'..='7')) => {
            let mut code = char.to_digit(8);
            for _ in 0..2 {
                if rest.starts_with(|next: char| matches!(next, '0'..='7')) {
                    code = code.zip(digit(&mut rest, 8).flatten()).map(|(code, digit)| code * 8 + digit);
                }
            }
            code.and_then(char::from_u32)
        }
        'x' if rest.starts_with('{') => {
            rest = &rest[1..];
            let (mut code, mut is_empty) = (0u32, true);
            loop {
                match next(&mut rest) {
                    Some('}') if !is_empty => break Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
                    Some(digit) if let Some(digit) = digit.to_digit(16) => {
                        (code, is_empty) = (code * 16 + digit, false);
                        if code > u32::from(char::MAX) {
                            break None;
                        }
                    }
                    _ => break None,
                }
            }
        }
        'x' => {
            let high = digit(&mut rest, 16);
            let low = high.and_then(|_| digit(&mut rest, 16));
            high.flatten().zip(low.flatten()).and_then(|(high, low)| char::from_u32(high * 16 + low))
        }
        'a' => Some('\u{7}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\u{b}'),
        _ => Some(char).filter(|char| char.is_ascii() && !char.is_ascii_alphanumeric()),
    };
    *text = rest;
    found.ok_or(Error(ESCAPE, up_to(start, rest)))
}

/// Returns whether there is a category or script of characters of this name.
fn is_property(name: &str) -> bool {
    let is_name = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || " _-".contains(char));
    let known = |kind: &str| Regex::new(&format!(r"\p{{{kind}={name}}}")).is_ok();
    is_name && (known("gc") || known("sc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns, each with the error of Go's `regexp.Compile`.
    const RECORDED: &str = include_str!("testdata/go-regexp.txt");

    #[test]
    fn errors_are_those_of_go() {
        let mut wrong = Vec::new();
        for line in RECORDED.lines() {
            let (pattern, expect) = line.split_once('\t').unwrap();
            let found = check(pattern).err().unwrap_or_default();
            if found != expect {
                wrong.push(format!("{pattern}\n    Go   {expect}\n    ours {found}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
