//! DynamoRIO's coverage format, version 2: a text header with a module table, then a table of basic blocks, eight bytes each.
//!
//! ```text
//! DRCOV VERSION: 2
//! DRCOV FLAVOR: drcov
//! Module Table: version 2, count 1
//! Columns: id, base, end, entry, checksum, timestamp, path
//!  0, 0x0000000000400000, 0x0000000000402000, 0x0000000000000000, 0x00000000, 0x00000000, /bin/x
//! BB Table: 1 bbs
//! (start: u32, from the module's base; size: u16; module: u16; little-endian)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A module: where it was, and what of it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its first address in memory, and the one after its last.
    pub base: u64,
    /// See `base`.
    pub end: u64,
    /// Pieces of code that ran: offset from the base, size in bytes.
    pub blocks: BTreeSet<(u32, u16)>,
}

/// Modules by path.
pub type Modules = BTreeMap<String, Module>;

/// Writes a file.
pub fn write(out: &mut dyn Write, modules: &Modules) -> io::Result<()> {
    writeln!(out, "DRCOV VERSION: 2\nDRCOV FLAVOR: drcov")?;
    writeln!(out, "Module Table: version 2, count {}", modules.len())?;
    writeln!(out, "Columns: id, base, end, entry, checksum, timestamp, path")?;
    for (id, (path, m)) in modules.iter().enumerate() {
        writeln!(out, "{id:3}, {:#018x}, {:#018x}, {:#018x}, 0x00000000, 0x00000000, {path}", m.base, m.end, 0)?;
    }
    writeln!(out, "BB Table: {} bbs", modules.values().map(|m| m.blocks.len()).sum::<usize>())?;
    for (id, m) in modules.values().enumerate() {
        for (start, size) in &m.blocks {
            out.write_all(&start.to_le_bytes())?;
            out.write_all(&size.to_le_bytes())?;
            out.write_all(&(id as u16).to_le_bytes())?;
        }
    }
    Ok(())
}

/// Reads what [`write()`] or another tool wrote.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8]) -> Result<Modules, String> {
    if !bytes.starts_with(b"DRCOV VERSION: 2") {
        return Err("it does not begin with 'DRCOV VERSION: 2'".into());
    }
    let mut rest = bytes;
    let mut line = || -> Result<&str, String> {
        let end = rest.iter().position(|b| *b == b'\n').ok_or("it ends in the middle of the header")?;
        let text = std::str::from_utf8(&rest[..end]).map_err(|_| "its header is not text")?;
        rest = &rest[end + 1..];
        Ok(text.trim_end_matches('\r'))
    };
    if line()? != "DRCOV VERSION: 2" {
        return Err("it does not begin with 'DRCOV VERSION: 2'".into());
    }
    line()?;
    let table = line()?;
    let count: usize = table
        .strip_prefix("Module Table: version 2, count ")
        .and_then(|n| n.trim().parse().ok())
        .ok_or_else(|| format!("'{table}' is not a module table of version 2"))?;
    let columns: Vec<String> =
        line()?.trim_start_matches("Columns:").split(',').map(|c| c.trim().to_string()).collect();
    let column =
        |name: &str| columns.iter().position(|c| c == name).ok_or_else(|| format!("there is no column {name}"));
    let (base, end, path) = (column("base")?, column("end")?, column("path")?);
    let mut modules = Vec::new();
    for _ in 0..count {
        let text = line()?;
        let fields: Vec<&str> = text.splitn(columns.len(), ',').map(str::trim).collect();
        let hex = |i: usize| {
            let digits = fields.get(i)?.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).ok()
        };
        match (hex(base), hex(end), fields.get(path)) {
            (Some(base), Some(end), Some(path)) => {
                modules.push((path.to_string(), Module { base, end, blocks: BTreeSet::new() }));
            }
            _ => return Err(format!("'{text}' is not a module")),
        }
    }
    let table = line()?;
    let count: usize = table
        .strip_prefix("BB Table: ")
        .and_then(|n| n.strip_suffix(" bbs"))
        .and_then(|n| n.parse().ok())
        .ok_or_else(|| format!("'{table}' is not a table of blocks"))?;
    if rest.len() < count.saturating_mul(8) {
        return Err(format!("{count} blocks are announced, {} are there", rest.len() / 8));
    }
    for block in rest.chunks_exact(8).take(count) {
        let start = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        let (size, id) = (u16::from_le_bytes([block[4], block[5]]), u16::from_le_bytes([block[6], block[7]]));
        let module =
            modules.get_mut(usize::from(id)).ok_or_else(|| format!("a block of module {id}, which is not there"))?;
        module.1.blocks.insert((start, size));
    }
    let mut all = Modules::new();
    for (path, module) in modules {
        all.entry(path)
            .or_insert_with(|| Module { blocks: BTreeSet::new(), ..module.clone() })
            .blocks
            .extend(module.blocks);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, from the format's description.
    const FILE: &[u8] = b"DRCOV VERSION: 2\nDRCOV FLAVOR: drcov\nModule Table: version 2, count 2\n\
        Columns: id, base, end, entry, checksum, timestamp, path\n\
        \x20 0, 0x0000000000400000, 0x0000000000402000, 0x0000000000000000, 0x00000000, 0x00000000, /bin/a, b\n\
        \x20 1, 0x00007f0000000000, 0x00007f0000010000, 0x0000000000000000, 0x00000000, 0x00000000, /lib/c.so\n\
        BB Table: 3 bbs\n\x00\x10\x00\x00\x04\x00\x00\x00\x04\x10\x00\x00\x0b\x00\x00\x00\x34\x12\x00\x00\x01\x00\x01\x00";

    #[test]
    fn a_file_made_by_hand_is_read_and_written_as_it_is() {
        let modules = read(FILE).unwrap();
        let a = &modules["/bin/a, b"];
        assert_eq!((a.base, a.end), (0x400000, 0x402000));
        assert_eq!(a.blocks, BTreeSet::from([(0x1000, 4), (0x1004, 11)]));
        assert_eq!(modules["/lib/c.so"].blocks, BTreeSet::from([(0x1234, 1)]));
        let mut out = Vec::new();
        write(&mut out, &modules).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(FILE));
    }

    #[test]
    fn damage_is_told() {
        for (bytes, part) in [
            (&b"hello\n"[..], "DRCOV VERSION: 2"),
            (&FILE[..40], "ends in the middle"),
            (&FILE[..FILE.len() - 1], "3 blocks are announced, 2"),
        ] {
            let e = read(bytes).unwrap_err();
            assert!(e.contains(part), "{e}");
        }
        for cut in 0..FILE.len() {
            assert!(read(&FILE[..cut]).is_err(), "{cut}");
        }
    }
}
