//! From a program file to the QEMU target that runs it.
//!
//! Reads no more than the headers, and believes nothing in them: every offset is checked against the file's length.
//! The rules are those of QEMU's `linux-user/elfload.c` (which machine numbers a target takes) and of the kernel
//! (what is a program at all).

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf;

use crate::error::At;
use crate::target::Target;
use crate::{Error, Result};

/// What the headers say.
#[derive(Debug)]
pub struct Program {
    pub target: &'static Target,
    /// `PT_INTERP`: the dynamic loader, as the program names it.
    pub loader: Option<PathBuf>,
}

/// What is known to be wrong, without the file's name.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// Not an ELF file at all.
    NotElf,
    Broken(String),
    Unsupported(String),
}

/// Reads the headers of `path`. `Ok(None)`: not an ELF file.
pub fn read(path: &Path) -> Result<Option<Program>> {
    let file = File::open(path).at("read", path)?;
    let length = file.metadata().at("read", path)?.len();
    let fetch = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    match parse(length, fetch) {
        Ok(program) => Ok(Some(program)),
        Err(Fault::NotElf) => Ok(None),
        Err(Fault::Broken(why)) => Err(Error::BadElf { program: path.to_path_buf(), why }),
        Err(Fault::Unsupported(isa)) => Err(Error::UnsupportedIsa { program: path.to_path_buf(), isa }),
    }
}

/// The fields of the header that matter.
struct Header {
    wide: bool,
    big: bool,
    machine: u16,
    flags: u32,
}

fn parse(length: u64, fetch: impl Fn(u64, &mut [u8]) -> io::Result<()>) -> Result<Program, Fault> {
    let truncated = |what: &str, needs: u64| {
        Fault::Broken(format!("a truncated ELF file: {what} would end at byte {needs}, the file has {length}"))
    };
    // Everything is read through here, so nothing is read past the end.
    let bytes = |what: &str, offset: u64, count: u64| -> Result<Vec<u8>, Fault> {
        let end = offset.checked_add(count).filter(|&end| end <= length);
        let Some(_) = end else {
            return Err(truncated(what, offset.saturating_add(count)));
        };
        let mut buffer = vec![0; count as usize];
        fetch(offset, &mut buffer).map_err(|e| Fault::Broken(format!("cannot be read: {e}")))?;
        Ok(buffer)
    };

    if length < 4 || bytes("the magic", 0, 4)? != elf::ELFMAG {
        return Err(Fault::NotElf);
    }
    let ident = bytes("its identification", 0, 16)?;
    let wide = match ident[4] {
        elf::ELFCLASS32 => false,
        elf::ELFCLASS64 => true,
        other => {
            return Err(Fault::Broken(format!("an ELF file of unknown class {other}")));
        }
    };
    let big = match ident[5] {
        elf::ELFDATA2LSB => false,
        elf::ELFDATA2MSB => true,
        other => {
            return Err(Fault::Broken(format!("an ELF file of unknown byte order {other}")));
        }
    };
    match ident[7] {
        elf::ELFOSABI_HPUX => return Err(Fault::Unsupported("HP-UX".into())),
        elf::ELFOSABI_NETBSD => return Err(Fault::Unsupported("NetBSD".into())),
        elf::ELFOSABI_SOLARIS => return Err(Fault::Unsupported("Solaris".into())),
        elf::ELFOSABI_FREEBSD => return Err(Fault::Unsupported("FreeBSD".into())),
        elf::ELFOSABI_OPENBSD => return Err(Fault::Unsupported("OpenBSD".into())),
        _ => {}
    }
    let header = bytes("its header", 0, if wide { 64 } else { 52 })?;
    let number = |b: &[u8], at: usize, size: usize| -> u64 {
        let field = &b[at..at + size];
        let fold = |n: u64, &b: &u8| n << 8 | u64::from(b);
        if big { field.iter().fold(0, fold) } else { field.iter().rev().fold(0, fold) }
    };
    match number(&header, 16, 2) as u16 {
        elf::ET_EXEC | elf::ET_DYN => {}
        elf::ET_REL => return Err(Fault::Broken("an object file (.o), not a program".into())),
        elf::ET_CORE => return Err(Fault::Broken("a core dump, not a program".into())),
        other => {
            return Err(Fault::Broken(format!("an ELF file of type {other}, not a program")));
        }
    }
    let target = target(&Header {
        wide,
        big,
        machine: number(&header, 18, 2) as u16,
        flags: number(&header, if wide { 48 } else { 36 }, 4) as u32,
    })
    .map_err(Fault::Unsupported)?;

    let (offset, entry, count) = if wide {
        (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2))
    } else {
        (number(&header, 28, 4), number(&header, 42, 2), number(&header, 44, 2))
    };
    let least = if wide { 56 } else { 32 };
    if count == 0 || entry < least {
        return Err(Fault::Broken("an ELF file without program headers, not a program".into()));
    }
    let table = bytes("its program headers", offset, entry * count)?;
    let mut loader = None;
    let mut loads = 0;
    for segment in table.chunks_exact(entry as usize) {
        let (start, size) = if wide {
            (number(segment, 8, 8), number(segment, 32, 8))
        } else {
            (number(segment, 4, 4), number(segment, 16, 4))
        };
        match number(segment, 0, 4) as u32 {
            elf::PT_LOAD => {
                loads += 1;
                let end = start.saturating_add(size);
                if end > length {
                    return Err(truncated("a segment", end));
                }
            }
            elf::PT_INTERP => {
                // As much as the kernel takes (PATH_MAX).
                let mut name = bytes("its loader's name", start, size.min(4096))?;
                while name.last() == Some(&0) {
                    name.pop();
                }
                if name.is_empty() || name.contains(&0) {
                    return Err(Fault::Broken("an ELF file that names no usable dynamic loader".into()));
                }
                loader = Some(PathBuf::from(std::ffi::OsString::from_vec(name)));
            }
            _ => {}
        }
    }
    if loads == 0 {
        return Err(Fault::Broken("an ELF file with nothing to load".into()));
    }
    Ok(Program { target, loader })
}

/// The target for a header, or the name of what it is for.
fn target(h: &Header) -> Result<&'static Target, String> {
    const MICROBLAZE_OLD: u16 = 0xbaab;
    const EM_486: u16 = 6;
    const NANOMIPS: u16 = 249;
    let name = match (h.machine, h.wide, h.big) {
        (elf::EM_X86_64, true, false) => "x86_64",
        (elf::EM_X86_64, false, _) => return Err("the x32 ABI of x86-64".into()),
        (elf::EM_386 | EM_486, false, false) => "i386",
        (elf::EM_AARCH64, true, false) => "aarch64",
        (elf::EM_AARCH64, true, true) => "aarch64_be",
        (elf::EM_AARCH64, false, _) => return Err("the ILP32 ABI of AArch64".into()),
        (elf::EM_ARM, false, false) => "arm",
        (elf::EM_ARM, false, true) => "armeb",
        (elf::EM_RISCV, false, false) => "riscv32",
        (elf::EM_RISCV, true, false) => "riscv64",
        (elf::EM_MIPS | elf::EM_MIPS_RS3_LE, false, big) => match (h.flags & elf::EF_MIPS_ABI2 != 0, big) {
            (false, true) => "mips",
            (false, false) => "mipsel",
            (true, true) => "mipsn32",
            (true, false) => "mipsn32el",
        },
        (elf::EM_MIPS, true, true) => "mips64",
        (elf::EM_MIPS, true, false) => "mips64el",
        (elf::EM_PPC, false, true) => "ppc",
        (elf::EM_PPC64, true, true) => "ppc64",
        (elf::EM_PPC64, true, false) => "ppc64le",
        (elf::EM_S390, true, true) => "s390x",
        (elf::EM_S390, false, _) => return Err("31-bit S/390".into()),
        (elf::EM_SPARC, false, true) => "sparc",
        (elf::EM_SPARC32PLUS, false, true) => "sparc32plus",
        (elf::EM_SPARCV9, true, true) => "sparc64",
        (elf::EM_LOONGARCH, true, false) => "loongarch64",
        (elf::EM_LOONGARCH, false, _) => return Err("32-bit LoongArch".into()),
        (elf::EM_68K, false, true) => "m68k",
        (elf::EM_SH, false, false) => "sh4",
        (elf::EM_SH, false, true) => "sh4eb",
        (elf::EM_ALPHA, true, false) => "alpha",
        (elf::EM_PARISC, false, true) => "hppa",
        (elf::EM_PARISC, true, _) => return Err("64-bit PA-RISC".into()),
        (elf::EM_HEXAGON, false, false) => "hexagon",
        (elf::EM_MICROBLAZE | MICROBLAZE_OLD, false, true) => "microblaze",
        (elf::EM_MICROBLAZE | MICROBLAZE_OLD, false, false) => "microblazeel",
        (elf::EM_OPENRISC, false, true) => "or1k",
        (elf::EM_XTENSA, false, false) => "xtensa",
        (elf::EM_XTENSA, false, true) => "xtensaeb",
        (machine, wide, big) => {
            let name = match machine {
                elf::EM_NONE => "no machine",
                elf::EM_IA_64 => "Itanium",
                elf::EM_AVR => "AVR",
                elf::EM_CRIS => "CRIS",
                elf::EM_BPF => "BPF",
                elf::EM_CUDA => "CUDA",
                elf::EM_AMDGPU => "AMD GPUs",
                elf::EM_MSP430 => "MSP430",
                elf::EM_TRICORE => "TriCore",
                elf::EM_RX => "Renesas RX",
                elf::EM_ARC_COMPACT | elf::EM_ARC_COMPACT2 => "ARC",
                elf::EM_CSKY => "C-SKY",
                elf::EM_ALTERA_NIOS2 => "Nios II",
                NANOMIPS => "nanoMIPS",
                _ => {
                    let (bits, order) = (if wide { 64 } else { 32 }, if big { "big" } else { "little" });
                    return Err(format!("ELF machine {machine} ({bits} bits, {order}-endian)"));
                }
            };
            return Err(name.into());
        }
    };
    Target::named(name).ok_or_else(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal program: header, one `PT_LOAD` of the whole file, and a `PT_INTERP` if asked for.
    fn tiny(wide: bool, big: bool, machine: u16, flags: u32, loader: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        let put = |out: &mut Vec<u8>, value: u64, size: usize| {
            let bytes = value.to_le_bytes();
            if big { out.extend(bytes[..size].iter().rev()) } else { out.extend(&bytes[..size]) }
        };
        let word = if wide { 8 } else { 4 };
        let (header, entry) = if wide { (64, 56) } else { (52, 32) };
        let count = 1 + usize::from(loader.is_some());
        let name = loader.map(|l| [l.as_bytes(), b"\0"].concat()).unwrap_or_default();
        let total = header + count * entry + name.len();
        out.extend(b"\x7fELF");
        out.extend([if wide { 2 } else { 1 }, if big { 2 } else { 1 }, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        put(&mut out, 2, 2);
        put(&mut out, machine.into(), 2);
        put(&mut out, 1, 4);
        put(&mut out, 0x10000, word);
        put(&mut out, header as u64, word);
        put(&mut out, 0, word);
        put(&mut out, flags.into(), 4);
        for v in [header, entry, count, 0, 0, 0] {
            put(&mut out, v as u64, 2);
        }
        let mut segment = |kind: u64, offset: usize, size: usize| {
            put(&mut out, kind, 4);
            if wide {
                put(&mut out, 5, 4);
            }
            for v in [offset, 0x10000, 0x10000, size, size] {
                put(&mut out, v as u64, word);
            }
            if !wide {
                put(&mut out, 5, 4);
            }
            put(&mut out, 4, word);
        };
        segment(1, 0, total);
        if loader.is_some() {
            segment(3, header + count * entry, name.len());
        }
        out.extend(name);
        assert_eq!(out.len(), total);
        out
    }

    fn parse_bytes(bytes: &[u8]) -> Result<Program, Fault> {
        parse(bytes.len() as u64, |offset, buffer| {
            let from = offset as usize;
            let part = bytes.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(part);
            Ok(())
        })
    }

    #[test]
    fn every_target_is_found_from_its_header() {
        let cases: &[(&str, bool, bool, u16, u32)] = &[
            ("x86_64", true, false, 62, 0),
            ("i386", false, false, 3, 0),
            ("aarch64", true, false, 183, 0),
            ("aarch64_be", true, true, 183, 0),
            ("arm", false, false, 40, 0x5000400),
            ("armeb", false, true, 40, 0x5000000),
            ("riscv32", false, false, 243, 5),
            ("riscv64", true, false, 243, 5),
            ("mips", false, true, 8, 0x70001007),
            ("mipsel", false, false, 8, 0x70001007),
            ("mipsn32", false, true, 8, 0x80000027),
            ("mipsn32el", false, false, 8, 0x80000027),
            ("mips64", true, true, 8, 0x80000007),
            ("mips64el", true, false, 8, 0x80000007),
            ("ppc", false, true, 20, 0),
            ("ppc64", true, true, 21, 1),
            ("ppc64le", true, false, 21, 2),
            ("s390x", true, true, 22, 0),
            ("sparc", false, true, 2, 0),
            ("sparc32plus", false, true, 18, 0),
            ("sparc64", true, true, 43, 0),
            ("loongarch64", true, false, 258, 0x43),
            ("m68k", false, true, 4, 0),
            ("sh4", false, false, 42, 9),
            ("sh4eb", false, true, 42, 9),
            ("alpha", true, false, 0x9026, 0),
            ("hppa", false, true, 15, 0),
            ("hexagon", false, false, 164, 0x73),
            ("microblaze", false, true, 189, 0),
            ("microblazeel", false, false, 0xbaab, 0),
            ("or1k", false, true, 92, 0),
            ("xtensa", false, false, 94, 0),
            ("xtensaeb", false, true, 94, 0),
        ];
        assert_eq!(cases.len(), crate::target::TARGETS.len());
        for &(name, wide, big, machine, flags) in cases {
            let p = parse_bytes(&tiny(wide, big, machine, flags, None)).unwrap();
            assert_eq!(p.target.name, name);
            assert_eq!(p.loader, None);
            let p = parse_bytes(&tiny(wide, big, machine, flags, Some("/lib/ld.so.1"))).unwrap();
            assert_eq!(p.loader.as_deref(), Some(Path::new("/lib/ld.so.1")));
        }
    }

    #[test]
    fn isas_that_qemu_lacks_are_named() {
        for (wide, big, machine, name) in [
            (true, false, 50, "Itanium"),
            (false, false, 62, "x32"),
            (false, true, 22, "31-bit"),
            (false, false, 83, "AVR"),
            (true, false, 4242, "4242"),
        ] {
            match parse_bytes(&tiny(wide, big, machine, 0, None)) {
                Err(Fault::Unsupported(isa)) => assert!(isa.contains(name), "{isa}"),
                other => panic!("{other:?}"),
            }
        }
        let mut freebsd = tiny(true, false, 62, 0, None);
        freebsd[7] = 9;
        assert_eq!(parse_bytes(&freebsd).err(), Some(Fault::Unsupported("FreeBSD".into())));
    }

    #[test]
    fn no_cut_is_taken_for_whole() {
        for (wide, big) in [(true, false), (false, true)] {
            let machine = if wide { 62 } else { 8 };
            let whole = tiny(wide, big, machine, 0, Some("/lib/ld.so.1"));
            for length in 4..whole.len() {
                assert!(matches!(parse_bytes(&whole[..length]), Err(Fault::Broken(_))), "cut at {length}");
            }
            for length in 0..4 {
                assert_eq!(parse_bytes(&whole[..length]).err(), Some(Fault::NotElf));
            }
        }
    }

    #[test]
    fn no_header_makes_it_panic() {
        // Every byte of the headers set to each of a few values.
        let whole = tiny(true, false, 62, 0, Some("/lib/ld.so.1"));
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[at] = value;
                let _ = parse_bytes(&bad);
            }
        }
        let mut far = whole;
        far[32..40].fill(0xff);
        assert!(matches!(parse_bytes(&far), Err(Fault::Broken(_))));
    }

    #[test]
    fn what_is_no_program_is_said() {
        for (kind, word) in [(1, "object file"), (4, "core dump")] {
            let mut other = tiny(true, false, 62, 0, None);
            other[16] = kind;
            match parse_bytes(&other) {
                Err(Fault::Broken(why)) => assert!(why.contains(word), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn this_test_itself_is_a_program_of_the_host() {
        let program = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert_eq!(Some(program.target), Target::host());
    }
}
