//! What part of the run is traced: by the guest through the backdoor, by address, by the number of instructions.
//!
//! All of it becomes options of `-trapline`; functions are looked up in the program's own file, whose addresses QEMU moves to where it is loaded.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::error::At;
use crate::{Error, Result};

/// The options of `trapline run`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What is traced")]
pub struct Control {
    /// Do not trace until the program asks for it through the backdoor
    #[arg(long)]
    pub start_off: bool,
    /// Trace only while this region of interest of the program's is open
    #[arg(long, value_name = "NAME")]
    pub roi: Option<String>,
    /// Trace only code at these addresses, HI not included; may be given several times
    #[arg(long, value_name = "LO-HI", value_parser = range)]
    pub range: Vec<(u64, u64)>,
    /// Trace only the code of this function of the program's; may be given several times
    #[arg(long, value_name = "NAME")]
    pub function: Vec<String>,
    /// Whole machines: trace only the kernel's code, or only programs'
    #[arg(long, value_name = "LEVEL", value_parser = ["user", "kernel"])]
    pub level: Option<String>,
    /// Whole machines: trace only this address space, named by the physical address of its page tables
    #[arg(long, value_name = "ROOT", value_parser = address)]
    pub space: Option<u64>,
    /// Whole machines: trace only while the guest's kernel module says that this program runs
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,
    /// Do not trace the first N instructions of each thread
    #[arg(long, value_name = "N", conflicts_with = "every")]
    pub skip: Option<u64>,
    /// Trace M instructions of each thread, then no more
    #[arg(long = "count", value_name = "M", id = "window", conflicts_with = "every")]
    pub window: Option<u64>,
    /// Leave N instructions of each thread out, trace as many as --for says, and so on
    #[arg(long, value_name = "N", requires = "length")]
    pub every: Option<u64>,
    /// With --every: how many to trace
    #[arg(long = "for", value_name = "M", id = "length", requires = "every")]
    pub length: Option<u64>,
    /// Count instructions, so that the program can ask for their number
    #[arg(long)]
    pub icount: bool,
    /// Let the program use the backdoor for what touches the host: exit, recv, select
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["exit", "recv", "select"])]
    pub allow: Vec<String>,
    /// Folder with what the program may receive: a file per channel, named by its number
    #[arg(long, value_name = "FOLDER")]
    pub recv: Option<PathBuf>,
    /// Leave the backdoor's instructions what they are without it: illegal, and no-ops
    #[arg(long)]
    pub no_backdoor: bool,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn address(text: &str) -> std::result::Result<u64, String> {
    number(text).ok_or_else(|| "not a number, decimal or 0x…".into())
}

fn range(text: &str) -> std::result::Result<(u64, u64), String> {
    let parts = text.split_once('-').and_then(|(lo, hi)| Some((number(lo)?, number(hi)?)));
    match parts {
        Some((lo, hi)) if lo < hi => Ok((lo, hi)),
        Some(_) => Err("HI is not above LO".into()),
        None => Err("not of the form LO-HI, decimal or 0x…".into()),
    }
}

impl Control {
    /// What makes no sense for a program.
    pub fn fit_program(&self) -> Result<()> {
        let given =
            [("level", self.level.is_some()), ("space", self.space.is_some()), ("process", self.process.is_some())];
        match given.iter().find(|g| g.1) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage {
                what: format!("--{name} is for whole machines, and this is a program"),
                hint: "trapline run --system ISA -- QEMU-ARGUMENTS runs a machine".into(),
            }),
        }
    }

    /// As options of `-trapline`, for this program.
    pub fn settings(&self, program: &Path) -> Result<Vec<String>> {
        let doubled = |text: &str| text.replace(',', ",,");
        let mut settings = Vec::new();
        let mut add = |key: &str, value: String| settings.push(format!("{key}={}", doubled(&value)));
        if self.start_off {
            add("start", "off".into());
        }
        if self.no_backdoor {
            add("backdoor", "off".into());
        }
        if let Some(roi) = &self.roi {
            add("roi", roi.clone());
        }
        for (lo, hi) in &self.range {
            add("range", format!("{lo:#x}-{hi:#x}"));
        }
        if let Some(level) = &self.level {
            add("level", level.clone());
        }
        if let Some(space) = self.space {
            add("space", format!("{space:#x}"));
        }
        if let Some(process) = &self.process {
            add("process", process.clone());
        }
        for (lo, hi) in self.functions(program)? {
            add("image-range", format!("{lo:#x}-{hi:#x}"));
        }
        let numbers = [("skip", self.skip), ("count", self.window), ("every", self.every), ("for", self.length)];
        for (key, n) in numbers {
            if let Some(n) = n {
                add(key, n.to_string());
            }
        }
        if self.icount {
            add("icount", "on".into());
        }
        if !self.allow.is_empty() {
            add("allow", self.allow.join("+"));
        }
        if let Some(recv) = &self.recv {
            let recv = recv.canonicalize().at("read", recv)?;
            add("recv", recv.display().to_string());
        }
        Ok(settings)
    }

    /// Where the functions lie, by the addresses in the program's file.
    fn functions(&self, program: &Path) -> Result<Vec<(u64, u64)>> {
        if self.function.is_empty() {
            return Ok(Vec::new());
        }
        let data = fs::read(program).at("read", program)?;
        let bad = |why: String| Error::BadElf { program: program.to_path_buf(), why };
        let file = object::File::parse(&*data).map_err(|e| bad(e.to_string()))?;
        let thumb = file.architecture() == object::Architecture::Arm;
        let address = |a: u64| if thumb { a & !1 } else { a };
        let mut code: Vec<(u64, u64, &str)> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.is_definition() && matches!(s.kind(), SymbolKind::Text | SymbolKind::Label))
            .filter_map(|s| Some((address(s.address()), s.size(), s.name().ok()?)))
            .collect();
        code.sort_unstable();
        let mut ranges = Vec::new();
        for name in &self.function {
            let found: Vec<_> = code.iter().filter(|s| s.2 == name).collect();
            if found.is_empty() {
                return Err(Error::Usage {
                    what: format!("no function '{name}' in {}", program.display()),
                    hint: match code.is_empty() {
                        true => "the program is stripped: name its code by --range LO-HI".into(),
                        false => "functions are named as `nm` shows them".into(),
                    },
                });
            }
            for (start, size, _) in found {
                let end = match size {
                    // Assembly often does not say: up to the next symbol.
                    0 => code.iter().map(|s| s.0).find(|a| a > start).unwrap_or(start + 1),
                    size => start + size,
                };
                ranges.push((*start, end));
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_nonsense_is_refused() {
        assert_eq!(range("0x10-32"), Ok((16, 32)));
        for bad in ["", "1", "2-1", "1-1", "x-y", "1-0x"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_qemus() {
        let control = Control {
            start_off: true,
            roi: Some("a,b".into()),
            range: vec![(16, 32)],
            every: Some(1000),
            length: Some(10),
            allow: vec!["exit".into(), "recv".into()],
            ..Control::default()
        };
        let settings = control.settings(Path::new("/none")).unwrap();
        assert_eq!(settings, ["start=off", "roi=a,,b", "range=0x10-0x20", "every=1000", "for=10", "allow=exit+recv"]);
    }
}
