//! What memory simulators read: accesses, or what caches let through of them.
//!
//! | feed | line or record | source |
//! |---|---|---|
//! | `dramsim3` | `0xADDR READ|WRITE CYCLE` | DRAMsim3's `src/cpu.cc` and README |
//! | `ramulator` | `0xADDR R|W` | Ramulator 1, `dram` traces |
//! | `ramulator2` | `LD|ST ADDR`, decimal | Ramulator 2, `LoadStoreTrace` |
//! | `ramulator2-ooo` | `BUBBLES LOAD [STORE]`, decimal | Ramulator 2, `SimpleO3` |
//! | `dramsys` | `CYCLE: read|write 0xADDR` | DRAMSys' `.stl` |
//! | `dinero` | `0|1|2 ADDR`, hexadecimal: read, write, instruction | Dinero IV, `-informat d` |
//! | `lackey` | `I  ADDR,SIZE`, ` L ADDR,SIZE`, ` S ADDR,SIZE` | Valgrind's lackey, `--trace-mem=yes` |
//! | `gem5` | packets, protobuf | gem5's `src/proto/packet.proto` |
//!
//! Time is the number of retired instructions times the cycles of each (`--cpi`). With `--filter` addresses are lines of 64 bytes, and writes come when dirty
//! lines make room; without it each access is itself. Merged streams share the time and the caches. Dinero and lackey have the instructions, too, and take no filter. Addresses are virtual, or physical in
//! whole machines if asked for (instructions' stay virtual): an access that crosses pages is two then, and those of devices' registers are left out. What devices do is absent.

use crate::filter::{Filter, LINE, Shapes};
use crate::linear::{Feed, Insn};
use crate::sink::{Outputs, Shared, Sink};
use consumer::{Access, BlockInfo, Error, Physical, PhysicalKind, Stream, TableInfo};
use std::io::Write;
use std::sync::Mutex;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Style {
    Dramsim3,
    Ramulator,
    Ramulator2,
    Ramulator2Ooo,
    Dramsys,
    Dinero,
    Lackey,
    Gem5,
}

impl Style {
    /// Instructions are in it.
    pub fn has_insns(self) -> bool {
        matches!(self, Style::Dinero | Style::Lackey)
    }
}

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Reads written.
    pub reads: u64,
    /// Writes written.
    pub writes: u64,
    /// Accesses of the program.
    pub accesses: u64,
    /// Accesses of devices, which are not memory; with physical addresses.
    pub devices: u64,
    /// Accesses whose physical address is not known.
    pub unknown: u64,
}

/// Which addresses are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Addressing {
    /// Those of the program
    #[default]
    Virtual,
    /// Those of the machine's memory
    Physical,
}

/// The feed.
pub struct Memory<'o> {
    style: Style,
    shapes: Shapes,
    /// Cycles for an instruction.
    cpi: f64,
    addressing: Addressing,
    outputs: &'o Outputs,
    totals: Mutex<Totals>,
    shared: Shared<Lane>,
}

impl<'o> Memory<'o> {
    /// Writes in `style` what passes caches of these `shapes`.
    pub fn new(style: Style, shapes: Shapes, cpi: f64, addressing: Addressing, outputs: &'o Outputs) -> Self {
        let shared = Shared::new(outputs);
        Memory { style, shapes, cpi, addressing, outputs, totals: Mutex::default(), shared }
    }

    /// Over all streams.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Of an output.
pub struct Lane {
    sink: Option<Sink>,
    filter: Option<Filter>,
    totals: Totals,
    /// Instructions so far.
    insns: u64,
    /// Of `ramulator2-ooo`: a load whose store may follow, and the instructions since the one before.
    load: Option<(u64, u64)>,
    since: u64,
    packets: u64,
}

/// Appends a number as protobuf does.
fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A protobuf field of a number.
fn field(out: &mut Vec<u8>, number: u8, value: u64) {
    out.push(number << 3);
    varint(out, value);
}

/// Ticks of a second in gem5's traces: picoseconds.
const TICKS: u64 = 1_000_000_000_000;
/// Ticks of a cycle: 1 GHz.
const TICKS_PER_CYCLE: u64 = 1000;

fn gem5_header(out: &mut Vec<u8>) {
    out.extend_from_slice(b"gem5");
    let mut message = Vec::new();
    message.push(1 << 3 | 2);
    let name = b"trapline";
    varint(&mut message, name.len() as u64);
    message.extend_from_slice(name);
    field(&mut message, 2, 0);
    field(&mut message, 3, TICKS);
    varint(out, message.len() as u64);
    out.extend_from_slice(&message);
}

impl Memory<'_> {
    /// An output for a stream, or for all.
    fn open(&self, stream: &Stream) -> Result<Lane, Error> {
        let mut sink = self.outputs.open(stream)?;
        if let (Style::Gem5, Some(sink)) = (self.style, &mut sink) {
            gem5_header(sink.buffer());
        }
        Ok(Lane {
            sink,
            filter: (!self.shapes.0.is_empty()).then(|| Filter::new(&self.shapes)),
            totals: Totals::default(),
            insns: 0,
            load: None,
            since: 0,
            packets: 0,
        })
    }

    /// An instruction, for this output.
    fn insn_of(&self, state: &mut Lane, insn: &Insn<'_>) -> Result<(), Error> {
        let pc = insn.pc();
        let cycle = (state.insns as f64 * self.cpi) as u64;
        state.insns += 1;
        if let (Some(sink), true) = (&mut state.sink, self.style.has_insns()) {
            let out = sink.buffer();
            let _ = match self.style {
                Style::Dinero => writeln!(out, "2 {pc:x}"),
                _ => writeln!(out, "I  {pc:08x},{}", insn.len()),
            };
        }
        let mut filter = state.filter.take();
        state.totals.accesses += insn.accesses.len() as u64;
        for a in insn.accesses {
            for (addr, size) in self.parts(a, &mut state.totals).into_iter().flatten() {
                match &mut filter {
                    None => self.access(state, cycle, pc, (addr, size), a.is_store()),
                    Some(filter) => {
                        let last = addr.saturating_add(size.max(1) - 1);
                        for line in addr / LINE..=last / LINE {
                            filter.access(line, a.is_store(), &mut |line, write| {
                                self.access(state, cycle, pc, (line * LINE, LINE), write);
                            });
                        }
                    }
                }
            }
        }
        state.filter = filter;
        // An instruction that waits for memory is no bubble.
        state.since += u64::from(insn.accesses.is_empty());
        match &mut state.sink {
            Some(sink) => sink.put(),
            None => Ok(()),
        }
    }

    /// Addresses and sizes of an access.
    fn parts(&self, a: &Access, totals: &mut Totals) -> [Option<(u64, u64)>; 2] {
        let size = u64::from(a.size);
        if self.addressing == Addressing::Virtual {
            return [Some((a.addr, size)), None];
        }
        let next = a.physical_next();
        let first = match next {
            None => size,
            // Pages are of 1 KiB or more: larger accesses, which are footprints, of 4 KiB.
            Some(_) => (a.addr | if size < 1024 { 1023 } else { 4095 }) + 1 - a.addr,
        };
        let mut part = |place: Option<Physical>, size| match place {
            None => {
                totals.unknown += 1;
                None
            }
            Some(Physical { kind: PhysicalKind::Io, .. }) => {
                totals.devices += 1;
                None
            }
            Some(Physical { addr, .. }) => Some((addr, size)),
        };
        let head = part(a.physical(), first.min(size));
        [head, next.and_then(|n| part(Some(n), size.saturating_sub(first)))]
    }

    /// An output is complete.
    fn close(&self, mut state: Lane) -> Result<(), Error> {
        if let (Some((bubbles, load)), Some(sink)) = (state.load, &mut state.sink) {
            let _ = writeln!(sink.buffer(), "{bubbles} {load}");
        }
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.reads += state.totals.reads;
        all.writes += state.totals.writes;
        all.accesses += state.totals.accesses;
        all.devices += state.totals.devices;
        all.unknown += state.totals.unknown;
        if let Some(sink) = state.sink {
            self.outputs.closed(sink.finish()?);
        }
        Ok(())
    }
    /// One access of memory.
    fn access(&self, state: &mut Lane, cycle: u64, pc: u64, (addr, size): (u64, u64), write: bool) {
        let Some(sink) = &mut state.sink else { return };
        if write {
            state.totals.writes += 1;
        } else {
            state.totals.reads += 1;
        }
        let out = sink.buffer();
        // Writing to memory does not fail.
        let _ = match self.style {
            Style::Dramsim3 => writeln!(out, "{addr:#x} {} {cycle}", if write { "WRITE" } else { "READ" }),
            Style::Ramulator => writeln!(out, "{addr:#x} {}", if write { 'W' } else { 'R' }),
            Style::Ramulator2 => writeln!(out, "{} {addr}", if write { "ST" } else { "LD" }),
            Style::Dramsys => writeln!(out, "{cycle}: {} {addr:#x}", if write { "write" } else { "read" }),
            Style::Dinero => writeln!(out, "{} {addr:x}", u8::from(write)),
            Style::Lackey => writeln!(out, " {} {addr:08x},{size}", if write { 'S' } else { 'L' }),
            Style::Ramulator2Ooo => {
                match (write, state.load.take()) {
                    // A store rides on the load before it.
                    (true, Some((bubbles, load))) => {
                        let _ = writeln!(out, "{bubbles} {load} {addr}");
                    }
                    (true, None) => {
                        // One alone reads its line first.
                        let _ = writeln!(out, "{} {addr} {addr}", state.since);
                        state.since = 0;
                    }
                    (false, before) => {
                        if let Some((bubbles, load)) = before {
                            let _ = writeln!(out, "{bubbles} {load}");
                        }
                        state.load = Some((state.since, addr));
                        state.since = 0;
                    }
                }
                Ok(())
            }
            Style::Gem5 => {
                state.packets += 1;
                let mut message = Vec::with_capacity(40);
                field(&mut message, 1, cycle * TICKS_PER_CYCLE);
                field(&mut message, 2, if write { 4 } else { 1 });
                field(&mut message, 3, addr);
                field(&mut message, 4, size);
                field(&mut message, 6, state.packets);
                field(&mut message, 7, pc);
                varint(out, message.len() as u64);
                out.extend_from_slice(&message);
                Ok(())
            }
        };
    }
}

impl Feed for Memory<'_> {
    type Block = ();
    /// `None` if it is merged with the others.
    type State = Option<Lane>;

    fn begin(&self, stream: &Stream, _: &TableInfo) -> Result<Option<Lane>, Error> {
        self.shared.begin(|| self.open(stream))
    }

    fn block(&self, _: &TableInfo, _: &BlockInfo) {}

    fn insn(&self, state: &mut Option<Lane>, (): &(), insn: &Insn<'_>) -> Result<(), Error> {
        self.shared.with(state, |lane| self.insn_of(lane, insn))
    }

    fn end(&self, state: Option<Lane>, _: &Stream, _: u64) -> Result<(), Error> {
        state.map_or(Ok(()), |lane| self.close(lane))
    }

    fn finish(&self) -> Result<(), Error> {
        self.shared.take().map_or(Ok(()), |lane| self.close(lane))
    }
}
