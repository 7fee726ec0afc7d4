//! Links of the pages of a backend, which have to lead through the proxy, too: those to a path of the same server get
//! the path of the proxy.
//!
//! A page is rewritten while it arrives. Only one tag is kept at a time.

use std::io::{self, Write};

use flate2::{
    Compression,
    write::{GzDecoder, GzEncoder},
};
use http::{HeaderMap, Uri, header};

/// The greatest length of a tag whose links are rewritten.
const MAX_TAG: usize = 16 << 10;
/// The size of the parts in which compressed pages are expanded.
const PART: usize = 1 << 10;
/// The attributes with addresses, by the names of their elements, as HTML defines them.
const ADDRESSES: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// The elements whose content is text, whatever it looks like.
const TEXTS: [&str; 10] =
    ["iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp"];

/// Rewrites the links of a page, whose parts are passed in.
pub(super) struct Links {
    page: Page,
    /// How the page is compressed; `None` if it isn't.
    coding: Option<Gzip>,
}

/// Expands what arrives, and compresses what is passed on.
struct Gzip {
    decoder: GzDecoder<Vec<u8>>,
    encoder: GzEncoder<Vec<u8>>,
}

impl Links {
    /// Returns what rewrites the links of a response by its headers, and removes its length from them; `None` if it
    /// isn't a page.
    pub(super) fn of(headers: &mut HeaderMap, prefix: &str, host: Option<&str>) -> Option<Self> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?").trim());
        let media_type = text(header::CONTENT_TYPE)?.split(';').next()?.trim();
        let coding = match text(header::CONTENT_ENCODING) {
            None | Some("") => None,
            Some("gzip") => Some(Gzip {
                decoder: GzDecoder::new(Vec::new()),
                encoder: GzEncoder::new(Vec::new(), Compression::fast()),
            }),
            Some(_) => return None,
        };
        if media_type != "text/html" || prefix.is_empty() {
            return None;
        }
        headers.remove(header::CONTENT_LENGTH);
        let page = Page { prefix: prefix.into(), host: host.map(Into::into), state: State::Text, left: Vec::new() };
        Some(Self { page, coding })
    }

    /// Returns the next part of the page, after one has arrived.
    pub(super) fn push(&mut self, part: &[u8]) -> io::Result<Vec<u8>> {
        let Some(Gzip { decoder, encoder }) = &mut self.coding else { return Ok(self.page.push(part, false)) };
        for part in part.chunks(PART) {
            decoder.write_all(part)?;
            let plain = std::mem::take(decoder.get_mut());
            encoder.write_all(&self.page.push(&plain, false))?;
        }
        Ok(std::mem::take(encoder.get_mut()))
    }

    /// Returns the rest of the page, once all has arrived.
    pub(super) fn finish(mut self) -> io::Result<Vec<u8>> {
        let Some(Gzip { mut decoder, mut encoder }) = self.coding else { return Ok(self.page.push(&[], true)) };
        decoder.try_finish()?;
        encoder.write_all(&self.page.push(decoder.get_ref(), true))?;
        encoder.finish()
    }
}

/// What a page is at some place.
enum State {
    Text,
    Comment,
    /// Text up to the end of the element with this name.
    Element(&'static str),
}

struct Page {
    prefix: String,
    host: Option<String>,
    state: State,
    /// The beginning of what can't be understood yet.
    left: Vec<u8>,
}

impl Page {
    fn push(&mut self, part: &[u8], is_last: bool) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.left);
        text.extend_from_slice(part);
        let (mut done, mut rest) = (Vec::with_capacity(text.len()), text.as_slice());
        while let Some(length) = self.next(rest, &mut done) {
            rest = &rest[length..];
        }
        if is_last || rest.len() > MAX_TAG {
            done.extend_from_slice(rest);
        } else {
            self.left = rest.to_vec();
        }
        done
    }

    /// Writes the next piece of a text, and returns its length; `None` if the text is at its end, or more is needed to
    /// understand it.
    fn next(&mut self, text: &[u8], done: &mut Vec<u8>) -> Option<usize> {
        let end: &[u8] = match self.state {
            State::Comment => b"-->",
            State::Element(name) => return self.element(name, text, done),
            State::Text if text.starts_with(b"<!--") => {
                self.state = State::Comment;
                b"-->"
            }
            State::Text if text.first() == Some(&b'<') => return self.tag(text, done),
            State::Text => b"<",
        };
        let found = text.windows(end.len()).position(|window| window == end);
        let length = match (&self.state, found) {
            (State::Comment, Some(at)) => {
                self.state = State::Text;
                at + end.len()
            }
            (_, Some(at)) => at,
            // The end may have begun.
            (_, None) => text.len().saturating_sub(end.len() - 1),
        };
        done.extend_from_slice(&text[..length]);
        (length > 0).then_some(length)
    }

    /// Writes the content of an element that is text.
    fn element(&mut self, name: &str, text: &[u8], done: &mut Vec<u8>) -> Option<usize> {
        let is_end = |window: &[u8]| window.starts_with(b"</") && window[2..].eq_ignore_ascii_case(name.as_bytes());
        let length = match text.windows(name.len() + 2).position(is_end) {
            Some(at) => {
                self.state = State::Text;
                // The tag that follows is read as such.
                if at == 0 {
                    return self.next(text, done);
                }
                at
            }
            None => text.len().saturating_sub(name.len() + 1),
        };
        done.extend_from_slice(&text[..length]);
        (length > 0).then_some(length)
    }

    /// Writes a tag, or the character that looks like the beginning of one.
    fn tag(&mut self, text: &[u8], done: &mut Vec<u8>) -> Option<usize> {
        let is_start = text.get(1)?.is_ascii_alphabetic();
        if !is_start {
            // It may become a comment.
            let needs_more = text.len() < 4 && b"<!--".starts_with(text);
            return (!needs_more).then(|| {
                done.push(b'<');
                1
            });
        }
        let attributes = Attributes { text, at: 1 + text[1..].iter().take_while(|byte| is_name(**byte)).count() };
        let name = String::from_utf8_lossy(&text[1..attributes.at]).to_lowercase();
        let addresses = ADDRESSES.iter().find(|(element, _)| *element == name).map_or(&[][..], |(_, names)| names);
        let (mut written, mut attributes) = (0, attributes);
        let mut tag = Vec::new();
        loop {
            match attributes.next()? {
                Token::End => break,
                Token::Attribute { name, value } => {
                    if addresses.iter().any(|address| name.eq_ignore_ascii_case(address.as_bytes())) {
                        let insert = self.insertion(&text[value.clone()]).map(|at| value.start + at);
                        if let Some(at) = insert {
                            tag.extend_from_slice(&text[written..at]);
                            tag.extend_from_slice(self.prefix.as_bytes());
                            written = at;
                        }
                    }
                }
            }
        }
        tag.extend_from_slice(&text[written..attributes.at]);
        done.append(&mut tag);
        if let Some(name) = TEXTS.iter().find(|text| **text == name) {
            self.state = State::Element(name);
        }
        Some(attributes.at)
    }

    /// Returns the place in an address at which the path of the proxy belongs; `None` if it leads elsewhere, or through
    /// the proxy already.
    fn insertion(&self, address: &[u8]) -> Option<usize> {
        let address = std::str::from_utf8(address).ok()?;
        let start = if address.starts_with('/') && !address.starts_with("//") {
            0
        } else {
            let rest = address.strip_prefix("//").or_else(|| address.split_once("://").map(|(_, rest)| rest))?;
            let path = rest.find('/')?;
            if Some(&rest[..path]) != self.host.as_deref() {
                return None;
            }
            address.len() - rest.len() + path
        };
        // What isn't an address is left alone.
        let path = &address[start..];
        path.parse::<Uri>().is_ok().then_some(())?;
        (!path.starts_with(&self.prefix)).then_some(start)
    }
}

fn is_name(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !matches!(byte, b'>' | b'/')
}

/// Reads the attributes of a tag.
struct Attributes<'a> {
    text: &'a [u8],
    at: usize,
}

enum Token<'a> {
    Attribute { name: &'a [u8], value: std::ops::Range<usize> },
    End,
}

impl<'a> Attributes<'a> {
    /// Returns the next attribute, or the end of the tag; `None` if the text ends before.
    fn next(&mut self) -> Option<Token<'a>> {
        self.skip(|byte| byte.is_ascii_whitespace() || byte == b'/');
        if *self.text.get(self.at)? == b'>' {
            self.at += 1;
            return Some(Token::End);
        }
        let start = self.at;
        // A name has at least one character, which may even be `=`.
        self.at += 1;
        self.skip(|byte| is_name(byte) && byte != b'=');
        let name = &self.text[start..self.at];
        self.skip(|byte| byte.is_ascii_whitespace());
        if *self.text.get(self.at)? != b'=' {
            return Some(Token::Attribute { name, value: self.at..self.at });
        }
        self.at += 1;
        self.skip(|byte| byte.is_ascii_whitespace());
        let quote = *self.text.get(self.at)?;
        if !matches!(quote, b'"' | b'\'') {
            let start = self.at;
            self.skip(|byte| !byte.is_ascii_whitespace() && byte != b'>');
            self.text.get(self.at)?;
            return Some(Token::Attribute { name, value: start..self.at });
        }
        let start = self.at + 1;
        self.at = start;
        self.skip(|byte| byte != quote);
        let value = start..self.at;
        self.text.get(self.at)?;
        self.at += 1;
        Some(Token::Attribute { name, value })
    }

    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| is_skipped(**byte)).count();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read;

    use super::*;

    fn links(lines: &[(&'static str, &'static str)]) -> Option<Links> {
        let mut headers: HeaderMap =
            lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let links = Links::of(&mut headers, "/p/proxy", Some("localhost:6443"));
        assert_eq!(headers.contains_key("content-length"), links.is_none());
        links
    }

    fn html(coding: &'static str) -> Links {
        let lines =
            [("content-type", "text/html; charset=utf-8"), ("content-length", "9"), ("content-encoding", coding)];
        links(&lines).unwrap()
    }

    #[test]
    fn links_to_the_same_server_lead_through_the_proxy() {
        let check = |page: &str, expect: &str| {
            for size in [1, 2, 3, 5, 1000] {
                let mut links = html("");
                let mut found = Vec::new();
                for part in page.as_bytes().chunks(size) {
                    found.extend(links.push(part).unwrap());
                }
                found.extend(links.finish().unwrap());
                assert_eq!(String::from_utf8_lossy(&found), expect, "in parts of {size}");
            }
        };
        let same = |page: &str| check(page, page);
        check(r#"<a href="/rewriteme">test</a>"#, r#"<a href="/p/proxy/rewriteme">test</a>"#);
        check("é<A\n x HREF = '/a?b=c&amp;d#e' y=/z/>é", "é<A\n x HREF = '/p/proxy/a?b=c&amp;d#e' y=/z/>é");
        check("<img src=/a.png usemap=/b><br/>", "<img src=/p/proxy/a.png usemap=/p/proxy/b><br/>");
        check(r#"<a href="https://localhost:6443/a">"#, r#"<a href="https://localhost:6443/p/proxy/a">"#);
        check(r#"<a href="//localhost:6443/a">"#, r#"<a href="//localhost:6443/p/proxy/a">"#);
        check(
            "<script src='/a'>'<a href=\"/b\">'</SCRIPT><a href=/>",
            "<script src='/p/proxy/a'>'<a href=\"/b\">'</SCRIPT><a href=/p/proxy/>",
        );
        check("<!-- <a href='/a'> -><!-- --><base href=/>", "<!-- <a href='/a'> -><!-- --><base href=/p/proxy/>");
        check("<div a='>' =x><q cite=/>", "<div a='>' =x><q cite=/p/proxy/>");
        for page in [
            "",
            "<",
            "< a",
            "<a",
            "<a href='/x",
            "<!-",
            "<!DOCTYPE html>",
            "a < b",
            "<p href='/a' src=/b>",
            "</a href=/b>",
            "<style><a href=/>",
        ] {
            same(page);
        }
        for address in [
            "a",
            "./a",
            "https://example.com/a",
            "//example.com/a",
            "https://localhost:6443",
            "/p/proxy/a",
            "#a",
            "mailto:a@b",
            "?a=/b",
            "/ a",
        ] {
            same(&format!("<a href='{address}'>"));
        }
    }

    #[test]
    fn compressed_pages_stay_compressed() {
        let mut compressed = Vec::new();
        let page = "<a href=/a>".repeat(1000);
        read::GzEncoder::new(page.as_bytes(), Compression::best()).read_to_end(&mut compressed).unwrap();
        let mut links = html("gzip");
        let mut found = Vec::new();
        for part in compressed.chunks(7) {
            found.extend(links.push(part).unwrap());
        }
        found.extend(links.finish().unwrap());
        let mut text = String::new();
        read::GzDecoder::new(found.as_slice()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "<a href=/p/proxy/a>".repeat(1000));
        assert!(html("gzip").push(b"<a href=/a>").is_err(), "it isn't compressed");
    }

    #[test]
    fn other_responses_stay_as_they_are() {
        let length = ("content-length", "9");
        assert!(links(&[length]).is_none());
        assert!(links(&[("content-type", "text/plain"), length]).is_none());
        assert!(links(&[("content-type", "text/html"), ("content-encoding", "br"), length]).is_none());
    }

    #[test]
    fn a_tag_without_an_end_is_not_kept() {
        let mut links = html("");
        let mut found = links.push(b"<a x='").unwrap();
        for _ in 0..100 {
            found.extend(links.push(&[b'x'; 1 << 10]).unwrap());
        }
        assert!(found.len() >= MAX_TAG && links.page.left.len() <= MAX_TAG);
    }
}
