//! The ELF headers of a program: its architecture, and whether it is linked statically.

use thiserror::Error;

/// The type of the segment that contains the interpreter's path (`PT_INTERP` in the System V ABI).
const INTERPRETER: u32 = 3;

/// The properties of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The architecture, by its name in Go and in image manifests.
    pub(crate) architecture: &'static str,
    /// The dynamic linker of a dynamically linked program.
    pub(crate) interpreter: Option<String>,
}

/// The error for a file that is not a program for an image.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ElfError {
    /// The file is not ELF.
    #[error("the file is not a Linux program in ELF format: build it with --target, such as x86_64-unknown-linux-musl")]
    NotElf,
    /// The file is truncated or corrupt.
    #[error("the ELF file is truncated or corrupt: build it again")]
    Corrupt,
    /// The file is a library or an object file.
    #[error("the ELF file is not executable (type {0})")]
    NotExecutable(u16),
    /// The architecture is not supported.
    #[error("images for this architecture are not supported (ELF machine {0})")]
    Machine(u16),
}

/// Reads numbers in the byte order of a file.
struct ByteReader<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl ByteReader<'_> {
    fn take<const N: usize>(&self, at: usize) -> Result<[u8; N], ElfError> {
        let end = at.checked_add(N).ok_or(ElfError::Corrupt)?;
        let taken = self.bytes.get(at..end).and_then(|taken| taken.try_into().ok());
        let mut taken: [u8; N] = taken.ok_or(ElfError::Corrupt)?;
        if !self.little {
            taken.reverse();
        }
        Ok(taken)
    }

    fn u16(&self, at: usize) -> Result<u16, ElfError> {
        Ok(u16::from_le_bytes(self.take(at)?))
    }

    fn u32(&self, at: usize) -> Result<u32, ElfError> {
        Ok(u32::from_le_bytes(self.take(at)?))
    }

    /// Reads a number with the size of an address.
    fn word(&self, at: usize, wide: bool) -> Result<usize, ElfError> {
        let number = if wide { u64::from_le_bytes(self.take(at)?) } else { self.u32(at)?.into() };
        usize::try_from(number).map_err(|_| ElfError::Corrupt)
    }
}

/// Parses the headers of a program.
pub(crate) fn read(bytes: &[u8]) -> Result<Program, ElfError> {
    let Some([0x7f, b'E', b'L', b'F', class @ (1 | 2), order @ (1 | 2)]) = bytes.first_chunk() else {
        return Err(ElfError::NotElf);
    };
    let (wide, file) = (*class == 2, ByteReader { bytes, little: *order == 1 });
    // An executable, or a position-independent executable.
    let (kind, machine) = (file.u16(16)?, file.u16(18)?);
    if !matches!(kind, 2 | 3) {
        return Err(ElfError::NotExecutable(kind));
    }
    let architecture = match machine {
        3 => "386",
        21 if file.little => "ppc64le",
        22 => "s390x",
        40 => "arm",
        62 => "amd64",
        183 => "arm64",
        243 => "riscv64",
        258 => "loong64",
        other => return Err(ElfError::Machine(other)),
    };
    let table = file.word(if wide { 32 } else { 28 }, wide)?;
    let (size, count) = if wide { (file.u16(54)?, file.u16(56)?) } else { (file.u16(42)?, file.u16(44)?) };
    let mut interpreter = None;
    for index in 0..usize::from(count) {
        let header = index.checked_mul(size.into()).and_then(|offset| offset.checked_add(table));
        let header = header.ok_or(ElfError::Corrupt)?;
        if file.u32(header)? != INTERPRETER {
            continue;
        }
        let (offset, length) = if wide { (8, 32) } else { (4, 16) };
        let (start, length) = (file.word(header + offset, wide)?, file.word(header + length, wide)?);
        let name = start.checked_add(length).and_then(|end| bytes.get(start..end)).ok_or(ElfError::Corrupt)?;
        interpreter = Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
    }
    Ok(Program { architecture, interpreter })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the headers of a Linux program for amd64.
    pub(crate) fn program(interpreter: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16] = 3;
        bytes[18] = 62;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        let mut header = vec![0; 56];
        if let Some(name) = interpreter {
            header[0] = 3;
            header[8] = 120;
            header[32] = u8::try_from(name.len() + 1).unwrap();
            bytes.extend(header);
            bytes.extend(name.bytes());
            bytes.push(0);
        } else {
            header[0] = 1;
            bytes.extend(header);
        }
        bytes
    }

    #[test]
    fn the_interpreter_is_read() {
        let linker = "/lib64/ld-linux-x86-64.so.2";
        let found = read(&program(Some(linker))).unwrap();
        assert_eq!(found, Program { architecture: "amd64", interpreter: Some(linker.into()) });
        assert_eq!(read(&program(None)).unwrap().interpreter, None);
    }

    #[test]
    fn the_test_binary_is_read() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        assert_eq!(read(&own).unwrap().architecture, expected);
    }

    #[test]
    fn big_endian_32_bit_programs_are_read() {
        let mut bytes = vec![0; 52 + 32];
        bytes[..6].copy_from_slice(b"\x7fELF\x01\x02");
        for (at, value) in [(17, 2), (19, 22), (31, 52), (43, 32), (45, 1), (55, 1)] {
            bytes[at] = value;
        }
        assert_eq!(read(&bytes).unwrap(), Program { architecture: "s390x", interpreter: None });
    }

    #[test]
    fn other_files_are_errors() {
        assert_eq!(read(b"#!/bin/sh\n"), Err(ElfError::NotElf));
        assert_eq!(read(b""), Err(ElfError::NotElf));
        let whole = program(Some("/lib/ld.so"));
        for length in 6..whole.len() {
            assert_eq!(read(&whole[..length]), Err(ElfError::Corrupt), "{length} bytes");
        }
        let mut other = program(None);
        other[16] = 1;
        assert_eq!(read(&other), Err(ElfError::NotExecutable(1)));
        other[16] = 2;
        other[18] = 8;
        assert_eq!(read(&other), Err(ElfError::Machine(8)));
    }
}
