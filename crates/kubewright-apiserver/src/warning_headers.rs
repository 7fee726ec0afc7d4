//! The warnings of a response, which clients get as `Warning` headers (RFC 7234, code 299) and kubectl prints.

use http::{HeaderMap, HeaderValue, header};

/// The number of characters of all warnings from which on each of them is shortened.
const MAX_CHARS: usize = 4096;
/// The number of characters of a warning that is shortened.
const SHORTENED: usize = 256;

/// The warnings of one response: each text once, in the order in which they were added. When all of them are too long
/// for the headers of a response, they are shortened, and later ones are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarningHeaders {
    texts: Vec<String>,
    chars: usize,
    shortened: bool,
}

impl WarningHeaders {
    /// Adds a warning. Empty ones and those with control characters are left out.
    fn add(&mut self, text: &str) {
        let full = self.shortened && self.chars >= MAX_CHARS;
        if full || text.is_empty() || text.contains(char::is_control) || self.texts.iter().any(|other| other == text) {
            return;
        }
        self.texts.push(text.to_owned());
        self.chars += self.shown(text).chars().count();
        if self.chars > MAX_CHARS && !self.shortened {
            self.shortened = true;
            self.chars = self.texts.iter().map(|text| self.shown(text).chars().count()).sum();
        }
    }

    fn shown<'a>(&self, text: &'a str) -> &'a str {
        let end = text.char_indices().nth(SHORTENED).filter(|_| self.shortened);
        end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }

    /// Adds the headers of further warnings to those of a response.
    pub(crate) fn write(&mut self, further: &[String], headers: &mut HeaderMap) {
        let (written, shortened) = (self.texts.len(), self.shortened);
        further.iter().for_each(|text| self.add(text));
        let mut from = written;
        if self.shortened && !shortened {
            headers.remove(header::WARNING);
            from = 0;
        }
        for text in self.texts.iter().skip(from) {
            let escaped = self.shown(text).replace('\\', r"\\").replace('"', r#"\""#);
            if let Ok(value) = HeaderValue::try_from(format!(r#"299 - "{escaped}""#)) {
                headers.append(header::WARNING, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the headers of warnings that are added one after the other.
    fn headers(texts: &[String]) -> Vec<String> {
        let (mut warnings, mut headers) = (WarningHeaders::default(), HeaderMap::new());
        texts.iter().for_each(|text| warnings.write(std::slice::from_ref(text), &mut headers));
        headers.get_all(header::WARNING).iter().map(|it| String::from_utf8(it.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn each_text_is_sent_once() {
        let texts = ["a", "b \"c\" \\", "a", "", "d\ne"].map(str::to_owned);
        assert_eq!(headers(&texts), [r#"299 - "a""#, r#"299 - "b \"c\" \\""#]);
    }

    #[test]
    fn long_ones_are_shortened_together() {
        let text = |index: usize, length: usize| format!("{index:03}{}", "ä".repeat(length - 3));
        let texts = |count: usize| (0..count).map(|index| text(index, 1024)).collect::<Vec<_>>();
        let lengths = |count| headers(&texts(count)).iter().map(|it| it.chars().count() - 8).collect::<Vec<_>>();
        assert_eq!(lengths(4), [1024; 4]);
        assert_eq!(lengths(5), [256; 5]);
        assert_eq!(lengths(16), [256; 16]);
        assert_eq!(lengths(40), [256; 16]);
    }
}
