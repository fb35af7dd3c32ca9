//! Feeds as the command has them.

use crate::championship::{Championship, Year};
use crate::champsim::{self, ChampSim};
use crate::columnar::Columnar;
use crate::drmemtrace::Drmemtrace;
use crate::filter::Shapes;
use crate::linear::{Feed, Lanes, Linear};
use crate::memory::{Addressing, Memory, Style};
use crate::simpoint::Vectors;
use crate::sink::{Outputs, Spread};
use crate::stf::Stf;
use consumer::{Analysis, Error, Format, Options, Source, Summary, run};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a feed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ChampSim, 64 bytes an instruction
    Champsim,
    /// ChampSim's format of CloudSuite traces, 96 bytes an instruction
    Cloudsuite,
    /// DynamoRIO's memory traces, version 7; -o FOLDER/ for the names that its tools expect
    Drmemtrace,
    /// SimPoint's basic-block vectors
    Bbv,
    /// DRAMsim3
    Dramsim3,
    /// Ramulator 1, memory traces
    Ramulator,
    /// Ramulator 2, loads and stores
    Ramulator2,
    /// Ramulator 2, its simple out-of-order core
    Ramulator2Ooo,
    /// DRAMSys
    Dramsys,
    /// Dinero IV, with instructions
    Dinero,
    /// As Valgrind's lackey writes it, with instructions
    Lackey,
    /// gem5's packet traces
    Gem5,
    /// STF 1.6 of RISC-V programs, with the values of accesses and registers
    Stf,
    /// The value prediction championship's traces (AArch64), with the values of registers
    Cvp1,
    /// The branch prediction championship's traces of 2025 (AArch64), with the values of registers
    Cbp2025,
    /// Tables for DuckDB, Polars, Spark; -o FOLDER
    Parquet,
}

impl Kind {
    /// It needs the values of accesses.
    pub fn needs_values(self) -> bool {
        self == Kind::Stf
    }
    /// Threads can be in one output.
    fn merges(self) -> bool {
        !matches!(self, Kind::Stf | Kind::Cvp1 | Kind::Cbp2025 | Kind::Parquet)
    }
    /// The analyzer whose stream has all that it can write.
    pub fn analyzer(self) -> &'static str {
        if matches!(self, Kind::Stf | Kind::Cvp1 | Kind::Cbp2025) { "registers" } else { "trace" }
    }
    fn memory(self) -> Option<Style> {
        Some(match self {
            Kind::Dramsim3 => Style::Dramsim3,
            Kind::Ramulator => Style::Ramulator,
            Kind::Ramulator2 => Style::Ramulator2,
            Kind::Ramulator2Ooo => Style::Ramulator2Ooo,
            Kind::Dramsys => Style::Dramsys,
            Kind::Dinero => Style::Dinero,
            Kind::Lackey => Style::Lackey,
            Kind::Gem5 => Style::Gem5,
            Kind::Champsim
            | Kind::Cloudsuite
            | Kind::Drmemtrace
            | Kind::Bbv
            | Kind::Parquet
            | Kind::Stf
            | Kind::Cvp1
            | Kind::Cbp2025 => return None,
        })
    }
}

/// Settings.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// Write what a simulator or tool reads, to -o: a file for each thread, compressed as its suffix says (.gz .xz .bz2 .zst .lz4)
    #[arg(long, value_enum, value_name = "NAME")]
    pub feed: Option<Kind>,
    /// Which threads are written
    #[arg(long, value_enum, default_value_t, requires = "feed")]
    pub streams: Spread,
    /// Memory feeds: only what these caches let through, the first one nearest to the program
    #[arg(long, value_name = "SIZE:WAYS,…", requires = "feed")]
    pub filter: Option<Shapes>,
    /// Memory feeds: cycles that stand for an instruction
    #[arg(long, value_name = "CYCLES", default_value_t = 1.0, requires = "feed")]
    pub cpi: f64,
    /// Memory feeds of whole machines: which addresses
    #[arg(long, value_enum, value_name = "WHICH", default_value_t, requires = "feed")]
    pub addressing: Addressing,
    /// bbv, parquet: instructions of an interval
    #[arg(long, value_name = "N", default_value_t = 10_000_000, requires = "feed")]
    pub interval: u64,
}

impl Args {
    /// The feed that was asked for, which writes to `output`.
    ///
    /// # Errors
    /// If there is no output.
    pub fn analysis(self, output: Option<&Path>, format: Format) -> Option<Result<Box<dyn Analysis>, String>> {
        let kind = self.feed?;
        let Some(output) = output else {
            return Some(Err("a feed needs to be told where to: -o FILE, a folder, or '-' for standard output".into()));
        };
        let output = output.to_path_buf();
        let wrong = if self.filter.is_some() && kind.memory().is_none_or(Style::has_insns) {
            Some(
                "--filter is for feeds of memory without instructions: dramsim3 ramulator ramulator2 ramulator2-ooo dramsys gem5",
            )
        } else if !(self.cpi.is_finite() && self.cpi > 0.0) {
            Some("--cpi: a number of cycles above 0 is expected")
        } else if self.streams == Spread::Merged && !kind.merges() {
            Some(
                "--streams merged is not for stf, cvp1, cbp2025 and parquet: in the first three each instruction is followed by its thread's next one, \
                 the last one keeps threads apart by itself",
            )
        } else if self.addressing == Addressing::Physical && kind.memory().is_none() {
            Some(
                "--addressing physical is for feeds of memory: dramsim3 ramulator ramulator2 ramulator2-ooo dramsys dinero lackey gem5",
            )
        } else if kind == Kind::Stf && output.extension().is_some_and(|e| e == "zstf") {
            Some(
                "a .zstf file is a container of the STF library's own, which is not written; its readers also take .stf, .stf.gz and .stf.xz",
            )
        } else if self.interval == 0 {
            Some("--interval: at least one instruction is expected")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Some(Err(wrong.into()));
        }
        Some(Ok(Box::new(Written { kind, args: self, output, format, report: Value::Null, text: String::new() })))
    }
}

struct Written {
    kind: Kind,
    args: Args,
    output: PathBuf,
    format: Format,
    /// What was written.
    report: Value,
    text: String,
}

impl Written {
    /// Runs `feed`; instructions and lost chunks.
    fn drive<F: Feed>(
        &self,
        source: &mut dyn Source,
        options: &Options,
        feed: &F,
    ) -> Result<(Summary, u64, u64), Error> {
        let mut lanes = Lanes::default();
        // With one worker parts come in the order in which they were handed over.
        let one = Options { workers: 1 };
        let merged = self.args.streams == Spread::Merged;
        let linear = Linear(feed);
        let summary = run(source, &linear, &mut lanes, if merged { &one } else { options })?;
        // Who interrupts us wants what there is.
        linear.finish(&mut lanes)?;
        Ok((summary, lanes.insns(), lanes.lost()))
    }
}

impl Analysis for Written {
    fn name(&self) -> &'static str {
        "feed"
    }

    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        let start = Instant::now();
        let outputs = |suffix| Outputs::new(&self.output, self.args.streams, suffix);
        let (written, (summary, insns, lost), mut report, mut text) = match self.kind {
            Kind::Champsim | Kind::Cloudsuite => {
                let layout =
                    if self.kind == Kind::Champsim { champsim::Layout::Plain } else { champsim::Layout::Cloudsuite };
                let outputs = outputs(".champsim.xz")?;
                let feed = ChampSim::new(layout, &outputs);
                let driven = self.drive(source, options, &feed)?;
                let (report, text) = champsim_report(&feed.totals());
                (outputs.written(), driven, report, text)
            }
            Kind::Drmemtrace => {
                let outputs = outputs(".trace.gz")?;
                let feed = Drmemtrace::new(&outputs);
                let driven = self.drive(source, options, &feed)?;
                let totals = feed.totals();
                let report = json!({"entries": totals.entries, "outcome_unknown": totals.open});
                (outputs.written(), driven, report, format!("{} entries\n", totals.entries))
            }
            Kind::Bbv => {
                let outputs = outputs(".bb.gz")?;
                let feed = Vectors::new(self.args.interval, &outputs);
                let driven = self.drive(source, options, &feed)?;
                let totals = feed.totals();
                let report = json!({"intervals": totals.intervals, "blocks": totals.blocks});
                let text = format!("{} intervals, {} basic blocks\n", totals.intervals, totals.blocks);
                (outputs.written(), driven, report, text)
            }
            Kind::Stf => {
                let outputs = outputs(".stf.gz")?;
                let feed = Stf::new(&outputs);
                let driven = self.drive(source, options, &feed)?;
                let t = feed.totals();
                let report = json!({
                    "taken": t.taken, "forced_pcs": t.forced, "values_unknown": t.unknown, "sources_unknown": t.sources,
                });
                let text = format!(
                    "{} branches taken, {} other changes of the pc, {} accesses and {} source registers without a known value\n",
                    t.taken, t.forced, t.unknown, t.sources
                );
                (outputs.written(), driven, report, text)
            }
            Kind::Cvp1 | Kind::Cbp2025 => {
                let outputs = outputs(".gz")?;
                let year = if self.kind == Kind::Cvp1 { Year::Cvp1 } else { Year::Cbp2025 };
                let feed = Championship::new(year, &outputs);
                let driven = self.drive(source, options, &feed)?;
                let t = feed.totals();
                let report = json!({
                    "records": t.insns,
                    "dropped": {
                        "registers": t.dropped, "values_unknown": t.unknown, "stores_of_loads": t.stores,
                        "outcome_unknown": t.open,
                    },
                });
                let text = format!(
                    "left out: {} registers without a place, {} outputs whose value is not known, {} stores of instructions that load, \
                     {} last branches\n",
                    t.dropped, t.unknown, t.stores, t.open
                );
                (outputs.written(), driven, report, text)
            }
            Kind::Parquet => {
                let feed = Columnar::new(&self.output, self.args.streams, self.args.interval)?;
                let driven = self.drive(source, options, &feed)?;
                let t = feed.totals();
                let report = json!({"events": t.events, "tables": t.files});
                let text = format!("{} events, {} files\n", t.events, t.files);
                ((vec![self.output.clone()], t.left_out, t.bytes), driven, report, text)
            }
            kind => {
                let Some(style) = kind.memory() else {
                    return Err(Error::Consumer(format!("the feed {kind:?} is none of memory")));
                };
                let outputs = outputs(if style == Style::Gem5 { ".gem5.gz" } else { ".trace.gz" })?;
                let shapes = self.args.filter.clone().unwrap_or_default();
                let feed = Memory::new(style, shapes, self.args.cpi, self.args.addressing, &outputs);
                let driven = self.drive(source, options, &feed)?;
                let t = feed.totals();
                if self.args.addressing == Addressing::Physical && t.accesses > 0 && t.unknown == t.accesses {
                    return Err(Error::Consumer(
                        "there are no physical addresses: the guest is a program, not a machine, or was recorded without them (trapline record --physical)".into(),
                    ));
                }
                let mut report = json!({"reads": t.reads, "writes": t.writes, "accesses": t.accesses});
                let mut text = format!("{} reads, {} writes of {} accesses\n", t.reads, t.writes, t.accesses);
                if self.args.addressing == Addressing::Physical {
                    report["of_devices"] = json!(t.devices);
                    report["address_unknown"] = json!(t.unknown);
                    text += &format!("left out: {} of devices, {} whose address is not known\n", t.devices, t.unknown);
                }
                (outputs.written(), driven, report, text)
            }
        };
        let (files, left_out, bytes) = written;
        let seconds = start.elapsed().as_secs_f64();
        report["instructions"] = json!(insns);
        report["bytes"] = json!(bytes);
        report["seconds"] = json!(seconds);
        report["files"] = files.iter().map(|f| json!(f.to_string_lossy())).collect();
        report["threads_left_out"] = json!(left_out);
        report["lost_chunks"] = json!(lost);
        let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        let mut first = format!(
            "{insns} instructions, {bytes} bytes{}, {:.1} million instructions per second",
            if self.kind == Kind::Parquet { "" } else { " before compression" },
            insns as f64 / seconds.max(1e-9) / 1e6
        );
        match &names[..] {
            [] => {}
            [one] => first += &format!(", to {one}"),
            [one, ..] => first += &format!(", to {one} and {} files more", names.len() - 1),
        }
        text.insert_str(0, &(first + "\n"));
        if left_out > 0 {
            text += &format!(
                "{left_out} threads are left out: each has a file if -o is a file or folder and --streams is each\n"
            );
        }
        if lost > 0 {
            text += &format!("{lost} chunks were lost: the trace has gaps\n");
        }
        (self.report, self.text) = (report, text);
        Ok(summary)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        match self.format {
            Format::Text => out.write_all(self.text.as_bytes())?,
            Format::Json => writeln!(out, "{}", self.report)?,
        }
        Ok(())
    }
}

fn champsim_report(totals: &champsim::Totals) -> (Value, String) {
    let d = totals.dropped;
    let [jumps, indirect, conditional, calls, indirect_calls, returns] = totals.branches;
    let report = json!({
        "branches": {
            "direct_jump": jumps,
            "indirect": indirect,
            "conditional": conditional,
            "direct_call": calls,
            "indirect_call": indirect_calls,
            "return": returns,
        },
        "dropped": {
            "sources": d.sources,
            "destinations": d.destinations,
            "loads": d.loads,
            "stores": d.stores,
            "address_0": d.zeros,
            "registers_unknown": d.unknown,
            "outcome_unknown": d.open,
        },
    });
    let mut text = format!(
        "branches: {jumps} jumps, {indirect} indirect, {conditional} conditional, {calls} calls, {indirect_calls} indirect calls, {returns} returns\n"
    );
    let dropped: Vec<String> = [
        (d.sources, "source registers"),
        (d.destinations, "destination registers"),
        (d.loads, "loads"),
        (d.stores, "stores"),
        (d.zeros, "accesses of address 0"),
        (d.unknown, "instructions without registers: no decoder knows them"),
        (d.open, "outcomes of last branches"),
    ]
    .iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{n} {what}"))
    .collect();
    if !dropped.is_empty() {
        text += &format!("no place for: {}\n", dropped.join(", "));
    }
    (report, text)
}
