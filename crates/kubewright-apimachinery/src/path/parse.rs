//! The parser of JSON paths.

use serde_json::Value;

use super::{Comparison, Filter, Operand, PathError, Step};

/// The maximum nesting of filters, which limits the parser's recursion.
const NESTING_LIMIT: usize = 8;

pub(super) fn steps(text: &str) -> Result<Vec<Step>, PathError> {
    let inner = text.trim();
    let inner = inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner).trim();
    let mut parser = Parser { text: inner, at: 0 };
    parser.skip("$");
    parser
        .steps(0)
        .and_then(|steps| if parser.rest().is_empty() { Ok(steps) } else { Err("unexpected character") })
        .map_err(|why| PathError::Syntax { path: text.into(), why, at: parser.at })
}

type Parsed<T> = Result<T, &'static str>;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn expect(&mut self, token: &str, why: &'static str) -> Parsed<()> {
        self.skip_spaces();
        if self.skip(token) { Ok(()) } else { Err(why) }
    }

    fn steps(&mut self, nesting: usize) -> Parsed<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.skip("..") {
                steps.push(Step::Descend);
                if !self.rest().starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.skip(".") {
                // A single dot denotes the whole object. A dot before a bracket has no meaning.
                let is_whole = steps.is_empty() && self.rest().is_empty();
                if !is_whole && !self.rest().starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.skip("[") {
                steps.push(self.bracket(nesting)?);
            } else {
                return Ok(steps);
            }
        }
    }

    fn field(&mut self) -> Parsed<Step> {
        if self.skip("*") {
            return Ok(Step::All);
        }
        let mut name = String::new();
        let mut chars = self.rest().char_indices();
        let mut length = self.rest().len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next().ok_or("an escape that escapes nothing")?.1),
                '.' | '[' | ']' | '(' | ')' | '=' | '!' | '<' | '>' | ',' | '{' | '}' => {
                    length = at;
                    break;
                }
                _ if c.is_whitespace() => {
                    length = at;
                    break;
                }
                _ => name.push(c),
            }
        }
        self.at += length;
        if name.is_empty() { Err("a field without a name") } else { Ok(Step::Field(name)) }
    }

    fn bracket(&mut self, nesting: usize) -> Parsed<Step> {
        self.skip_spaces();
        if self.skip("?") {
            self.expect("(", "a filter without an opening parenthesis")?;
            let filter = self.filter(nesting + 1)?;
            self.expect(")", "a filter without a closing parenthesis")?;
            self.expect("]", "an unclosed bracket")?;
            return Ok(Step::Filter(filter));
        }
        let mut steps = vec![self.selector()?];
        self.skip_spaces();
        while self.skip(",") {
            steps.push(self.selector()?);
            self.skip_spaces();
        }
        self.expect("]", "an unclosed bracket")?;
        Ok(if steps.len() == 1 { steps.remove(0) } else { Step::Union(steps) })
    }

    fn selector(&mut self) -> Parsed<Step> {
        self.skip_spaces();
        if self.skip("*") {
            return Ok(Step::All);
        }
        if self.rest().starts_with(['\'', '"']) {
            return Ok(Step::Field(self.quoted()?));
        }
        let start = self.number()?;
        if !self.skip(":") {
            return start.map(Step::Index).ok_or("neither an index nor a quoted name");
        }
        let end = self.number()?;
        let step = if self.skip(":") { self.number()?.unwrap_or(1) } else { 1 };
        let step = usize::try_from(step).ok().filter(|step| *step > 0).ok_or("a step must be at least 1")?;
        Ok(Step::Slice { start, end, step })
    }

    fn number(&mut self) -> Parsed<Option<i64>> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let length = rest.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if length == 0 {
            return Ok(None);
        }
        let number = rest[..length].parse().map_err(|_| "a number out of range")?;
        self.at += length;
        Ok(Some(number))
    }

    fn quoted(&mut self) -> Parsed<String> {
        let mut chars = self.rest().char_indices();
        let Some((_, quote)) = chars.next() else { return Err("an unclosed string") };
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.push(chars.next().ok_or("an unclosed string")?.1),
                _ if c == quote => {
                    self.at += at + c.len_utf8();
                    return Ok(text);
                }
                _ => text.push(c),
            }
        }
        Err("an unclosed string")
    }

    fn filter(&mut self, nesting: usize) -> Parsed<Filter> {
        if nesting > NESTING_LIMIT {
            return Err("too many filters within filters");
        }
        let left = self.operand(nesting)?;
        self.skip_spaces();
        const OPERATORS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let comparison = match OPERATORS.into_iter().find(|(token, _)| self.skip(token)) {
            Some((_, comparison)) => Some((comparison, self.operand(nesting)?)),
            None => None,
        };
        Ok(Filter { left, comparison })
    }

    fn operand(&mut self, nesting: usize) -> Parsed<Operand> {
        self.skip_spaces();
        if self.skip("@") {
            return Ok(Operand::Path(self.steps(nesting)?));
        }
        if self.rest().starts_with(['\'', '"']) {
            return Ok(Operand::Literal(Value::String(self.quoted()?)));
        }
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ')' | ']' | '=' | '!' | '<' | '>'));
        let word = &rest[..end.unwrap_or(rest.len())];
        let literal = match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::Number(word.parse().map_err(|_| "neither a path nor a literal")?),
        };
        self.at += word.len();
        Ok(Operand::Literal(literal))
    }
}
