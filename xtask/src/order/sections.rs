//! The sections of functions in a program, and names for them that other builds have, too.

use std::collections::BTreeMap;

/// A section in the linker's map.
#[derive(Debug, PartialEq)]
pub(super) struct Section {
    size: u64,
    pub(super) file: String,
    pub(super) name: String,
}

impl Section {
    #[cfg(test)]
    pub(super) fn new(file: &str, name: &str) -> Self {
        Self { size: 1, file: file.to_owned(), name: name.to_owned() }
    }
}

/// The sections of functions by their addresses.
#[derive(Debug)]
pub(super) struct Sections(BTreeMap<u64, Section>);

impl Sections {
    /// Reads the sections from a map of lld: `address address size align file:(section)`, hexadecimal.
    pub(super) fn read(map: &str) -> Self {
        let section = |line: &str| {
            let (input, name) = line.strip_suffix(')')?.rsplit_once(":(")?;
            let mut columns = input.split_whitespace();
            let [address, _, size, _] = [columns.next()?, columns.next()?, columns.next()?, columns.next()?];
            let file = columns.next()?.to_owned();
            let [address, size] = [address, size].map(|number| u64::from_str_radix(number, 16).ok());
            name.starts_with(".text").then_some((address?, Section { size: size?, file, name: name.to_owned() }))
        };
        Self(map.lines().filter_map(section).collect())
    }

    /// Returns whether the map has no sections, which is the case if it isn't one of lld.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the section that contains an address.
    pub(super) fn containing(&self, address: u64) -> Option<&Section> {
        let (begin, section) = self.0.range(..=address).next_back()?;
        (address - begin < section.size).then_some(section)
    }
}

/// Returns a pattern for an object file without the hashes of crates: `DIRECTORY/libNAME-HASH.rlib(MEMBER)`, or
/// `deps/NAME-HASH….rcgu.o` of the program itself. The files of the C library have none.
pub(super) fn file_pattern(file: &str) -> Option<String> {
    let (file, is_archive) = file.split_once('(').map_or((file, false), |(archive, _)| (archive, true));
    let (name, _) = file.rsplit('/').next()?.split_once('-')?;
    if is_archive {
        name.starts_with("lib").then(|| format!("*/{name}-*.rlib:"))
    } else {
        file.ends_with(".rcgu.o").then(|| format!("*/deps/{name}-*.rcgu.o"))
    }
}

/// Returns a pattern for a section's name without the parts that other versions of the compiler or of dependencies
/// change: `17h…E` at the end of a name in Rust's first mangling scheme, and the crates' disambiguators `Cs…_` in the
/// second.
pub(super) fn section_pattern(section: &str) -> String {
    const HASH: usize = 16;
    let is_hash = |text: &str| text.len() == HASH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some((name, rest)) = section.rsplit_once("17h")
        && let Some((hash, rest)) = rest.split_at_checked(HASH)
        && is_hash(hash)
        && rest.starts_with('E')
    {
        return format!("{name}17h*");
    }
    let mut parts = section.split("Cs");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('_') {
            Some((disambiguator, rest)) if disambiguator.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                text += "Cs*_";
                text += rest;
            }
            _ => {
                text += "Cs";
                text += part;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "             VMA              LMA     Size Align Out     In      Symbol
          80cf00           80cf00       50    16 .text
          80cf00           80cf00       20    16         /a/deps/kubewright-00ff.kubewright.11-cgu.0.rcgu.o:(.text._ZN10kubewright4main17h0123456789abcdefE)
          80cf00           80cf00       20     1                 kubewright::main
          80cf20           80cf20       10    16         /a/deps/libh2-22.rlib(h2-22.h2.33-cgu.0.rcgu.o):(.text.unlikely._RNvCsa1B_2h24cold)
          80cf30           80cf30        8    16         /usr/lib/crti.o:(.text)
          90cf30           90cf30        8    16         /a/deps/libh2-22.rlib(h2-22.h2.33-cgu.0.rcgu.o):(.rodata.x)
";

    #[test]
    fn addresses_lead_to_sections() {
        let sections = Sections::read(MAP);
        assert_eq!(sections.0.keys().collect::<Vec<_>>(), [&0x80_cf00, &0x80_cf20, &0x80_cf30]);
        let name = |address| sections.containing(address).map(|section| section.name.as_str());
        assert_eq!(name(0x80_cf1f), Some(".text._ZN10kubewright4main17h0123456789abcdefE"));
        assert_eq!(name(0x80_cf20), Some(".text.unlikely._RNvCsa1B_2h24cold"));
        assert_eq!([name(0x80_cf38), name(0)], [None, None]);
    }

    #[test]
    fn patterns_have_no_hashes() {
        let file = |address| file_pattern(&Sections::read(MAP).0[&address].file);
        assert_eq!(file(0x80_cf00).as_deref(), Some("*/deps/kubewright-*.rcgu.o"));
        assert_eq!(file(0x80_cf20).as_deref(), Some("*/libh2-*.rlib:"));
        assert_eq!(file(0x80_cf30), None);
        assert_eq!(section_pattern(".text._ZN10kubewright4main17h0123456789abcdefE"), ".text._ZN10kubewright4main17h*");
        assert_eq!(section_pattern(".text._RNvNtCsa1B_2h23f17hot"), ".text._RNvNtCs*_2h23f17hot");
        assert_eq!(section_pattern(".text.17h"), ".text.17h");
    }
}
