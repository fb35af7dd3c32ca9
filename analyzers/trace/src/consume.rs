//! Prints the events, one a line, as text or JSON lines.
//!
//! Rules:
//! * Lines of a stream come in its order; lines of several streams are mixed by parts of chunks.
//! * An instruction's line comes before those of its accesses. One that QEMU takes up again (a repeat loop that lets
//!   interrupts in, a block that crosses a chunk's end) has one `fetch` line, before its first access.
//! * Lines are made in parallel; which of them belong to an instruction that began in an earlier part is known only in order.
//!   So `Batch` marks them, and `reduce` leaves out what was printed before.

use consumer::{
    Access, Analysis, BlockExec, BlockInfo, Chunk, Consumer, Error, Event, Format, GuestEvent, InsnExec, Item, Options,
    Physical, PhysicalKind, Pool, Source, Status, Stream, Summary, run,
};
use decode::Target;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Range;

/// Settings.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {
    /// Record and print the values that are read and written
    #[arg(long)]
    pub values: bool,
    /// Whole machines: record and print physical addresses, and what is there
    #[arg(long)]
    pub physical: bool,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        self.named("trace", format)
    }

    /// The same for another analyzer, which has the half inside QEMU.
    pub fn named(self, name: &'static str, format: Format) -> Box<dyn Analysis> {
        Box::new(Trace { name, format, values: self.values, physical: self.physical })
    }
}

struct Trace {
    name: &'static str,
    format: Format,
    values: bool,
    physical: bool,
}

impl Analysis for Trace {
    fn name(&self) -> &'static str {
        self.name
    }
    fn qemu_options(&self) -> Vec<(String, String)> {
        let options = [("values", self.values), ("paddr", self.physical)];
        options.into_iter().filter(|o| o.1).map(|o| (o.0.into(), "on".into())).collect()
    }
    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        out: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        let mut printer = Printer { out, unfinished: HashMap::new() };
        let summary = run(
            source,
            &Lines { format: self.format, scratch: Pool::new(), printer: PhantomData },
            &mut printer,
            options,
        )?;
        printer.out.flush()?;
        Ok(summary)
    }
    fn report(&mut self, _: &mut dyn Write) -> Result<(), Error> {
        Ok(())
    }
}

struct Lines<'o> {
    format: Format,
    scratch: Pool<Scratch>,
    printer: PhantomData<fn(&'o mut (dyn Write + Send))>,
}

/// The text of what does not change, by block number and instruction.
#[derive(Default)]
struct Scratch {
    table: Option<u64>,
    target: Option<Target>,
    blocks: Vec<Option<Box<[String]>>>,
}

/// Lines, and what is to be said of some of them.
struct Batch {
    text: String,
    marks: Vec<Mark>,
}

/// An instruction that has, or may have, parts elsewhere.
struct Mark {
    pc: u64,
    /// Its `fetch` line in the text; empty if it has none.
    line: Range<usize>,
    /// More of it follows.
    continued: bool,
}

/// Where lines go.
struct Printer<'o> {
    out: &'o mut (dyn Write + Send),
    /// By stream: pcs of instructions that were printed and go on; more than one if signal handlers ran in between.
    unfinished: HashMap<usize, Vec<u64>>,
}

/// More signal handlers than this, one in the other, and the outermost instruction is forgotten.
const MOST_UNFINISHED: usize = 64;

impl Scratch {
    fn start(&mut self, chunk: &Chunk<'_>) {
        let table = chunk.table();
        if self.table != Some(table.serial()) {
            self.table = Some(table.serial());
            self.target = Target::named(&table.info().target);
            self.blocks.clear();
        }
    }

    /// What follows the kind of event in the `fetch` line of an instruction.
    fn insn(&mut self, format: Format, block: &BlockInfo, index: usize) -> &str {
        let number = block.number as usize;
        if self.blocks.len() <= number {
            self.blocks.resize_with(number + 1, || None);
        }
        let target = self.target;
        let lines = self.blocks[number].get_or_insert_with(|| {
            (0..block.insns.len())
                .map(|i| {
                    let (info, bytes) = (&block.insns[i], block.bytes(i));
                    let text = target.and_then(|t| decode::text(t, block.flags, info.pc, bytes));
                    let mut hex = String::new();
                    for b in bytes {
                        let _ = write!(hex, "{b:02x}");
                    }
                    match (format, text) {
                        (Format::Text, text) => {
                            format!("{:#x} {} {hex:16} {}", info.pc, info.len, text.unwrap_or_default())
                                .trim_end()
                                .to_string()
                        }
                        (Format::Json, None) => {
                            format!("\"pc\":\"{:#x}\",\"len\":{},\"bytes\":\"{hex}\"", info.pc, info.len)
                        }
                        (Format::Json, Some(text)) => {
                            format!(
                                "\"pc\":\"{:#x}\",\"len\":{},\"bytes\":\"{hex}\",\"text\":{}",
                                info.pc,
                                info.len,
                                quoted(text.as_bytes())
                            )
                        }
                    }
                })
                .collect()
        });
        &lines[index]
    }
}

/// Bytes as a JSON string.
fn quoted(bytes: &[u8]) -> String {
    serde_json::Value::from(String::from_utf8_lossy(bytes)).to_string()
}

/// Can QEMU leave this instruction and take it up again, other than at a chunk's end? Those that can loop:
/// x86 string instructions with a repeat prefix, and whatever accesses memory in a helper.
fn may_be_taken_up(insn: &InsnExec<'_>, x86: bool) -> bool {
    let repeats = || {
        let bytes = insn.bytes();
        let opcode = bytes
            .iter()
            .position(|b| !matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3));
        opcode.is_some_and(|i| {
            bytes[..i].iter().any(|b| matches!(b, 0xf2 | 0xf3))
                && matches!(bytes[i], 0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf)
        })
    };
    insn.has_helper_accesses() || (x86 && repeats())
}

struct Writer<'a> {
    batch: Batch,
    scratch: &'a mut Scratch,
    format: Format,
    stream: usize,
    x86: bool,
}

impl Writer<'_> {
    fn block(&mut self, block: &BlockExec<'_>) {
        let mut notes = block.notes().peekable();
        for insn in block.insns() {
            let from = self.batch.text.len();
            if insn.is_traced() {
                let ev = if insn.status == Status::Aborted { "aborted" } else { "fetch" };
                let what = self.scratch.insn(self.format, insn.block(), insn.index());
                let _ = match self.format {
                    Format::Text => writeln!(self.batch.text, "{} {ev:7} {what}", self.stream),
                    Format::Json => writeln!(self.batch.text, "{{\"stream\":{},\"ev\":\"{ev}\",{what}}}", self.stream),
                };
            }
            let continued = insn.status == Status::Continued;
            let first = insn.index() == block.start();
            if continued
                || (first && insn.status == Status::Retired && (insn.is_resumed() || may_be_taken_up(&insn, self.x86)))
            {
                self.batch.marks.push(Mark { pc: insn.pc(), line: from..self.batch.text.len(), continued });
            }
            for access in insn.accesses() {
                self.access(insn.pc(), access);
            }
            while let Some((_, note)) = notes.next_if(|(i, _)| usize::from(*i) <= insn.index()) {
                self.note(Some(insn.pc()), &note);
            }
        }
    }

    /// What an analyzer added to an instruction.
    fn note(&mut self, pc: Option<u64>, event: &Event) {
        let mut all: Vec<_> = pc.map(|pc| ("pc", Field::Address(pc))).into_iter().collect();
        all.extend(fields(event));
        line(&mut self.batch.text, self.format, self.stream, event.name(), &all);
    }

    /// Instructions of a block that has no words of its own.
    fn once(&mut self, block: &BlockInfo, insns: Range<usize>) {
        for index in insns {
            let what = self.scratch.insn(self.format, block, index);
            let _ = match self.format {
                Format::Text => writeln!(self.batch.text, "{} fetch   {what}", self.stream),
                Format::Json => writeln!(self.batch.text, "{{\"stream\":{},\"ev\":\"fetch\",{what}}}", self.stream),
            };
        }
    }

    fn access(&mut self, pc: u64, access: Access) {
        let ev = if access.is_store() { "store" } else { "load" };
        let flags = [
            (access.is_signed(), "signed"),
            (access.is_big_endian(), "big_endian"),
            (access.is_atomic(), "atomic"),
            (access.is_footprint(), "footprint"),
        ];
        let text = &mut self.batch.text;
        let Access { addr, size, value, .. } = access;
        // Writing to a String does not fail.
        let _ = match self.format {
            Format::Text => write!(text, "{} {ev:7} {pc:#x} {addr:#x} {size}", self.stream),
            Format::Json => write!(
                text,
                "{{\"stream\":{},\"ev\":\"{ev}\",\"pc\":\"{pc:#x}\",\"addr\":\"{addr:#x}\",\"size\":{size}",
                self.stream
            ),
        };
        if let Some(value) = value {
            let _ = match self.format {
                Format::Text => write!(text, " = {value:#x}"),
                Format::Json => write!(text, ",\"value\":\"{value:#x}\""),
            };
        }
        for (key, place) in [("paddr", access.physical()), ("paddr_next", access.physical_next())] {
            let Some(Physical { addr, kind }) = place else { continue };
            let kind = match kind {
                PhysicalKind::Ram => "ram",
                PhysicalKind::Rom => "rom",
                PhysicalKind::Io => "io",
            };
            let _ = match self.format {
                Format::Text => write!(text, " {kind}:{addr:#x}"),
                Format::Json => write!(text, ",\"{key}\":\"{addr:#x}\",\"{key}_is\":\"{kind}\""),
            };
        }
        for (_, name) in flags.iter().filter(|f| f.0) {
            let _ = match self.format {
                Format::Text => write!(text, " {name}"),
                Format::Json => write!(text, ",\"{name}\":true"),
            };
        }
        text.push_str(if self.format == Format::Json { "}\n" } else { "\n" });
    }

    fn event(&mut self, event: &Event) {
        line(&mut self.batch.text, self.format, self.stream, event.name(), &fields(event));
    }
}

/// A field of a rarer event.
enum Field {
    Address(u64),
    Number(i128),
    Text(Vec<u8>),
    Addresses(Vec<u64>),
}

fn fields(event: &Event) -> Vec<(&'static str, Field)> {
    use Field::{Address, Addresses, Number, Text};
    let n = |v: u64| Number(i128::from(v));
    match event {
        Event::Start { pid, tid, parent, creator: _, wall_ns } => {
            vec![("pid", n(*pid)), ("tid", n(*tid)), ("parent", n(*parent)), ("wall_ns", n(*wall_ns))]
        }
        Event::End { reason, code } => {
            vec![("reason", Text(reason.name().into())), ("code", Number(i128::from(*code)))]
        }
        Event::Fork { child } => vec![("child", n(*child))],
        Event::Exec { path } => vec![("path", Text(path.clone()))],
        Event::Syscall { pc, number, args, name } => {
            let mut fields = vec![("pc", Address(*pc)), ("number", n(*number))];
            if !name.is_empty() {
                fields.push(("name", Text(name.clone().into_bytes())));
            }
            fields.push(("args", Addresses(args.to_vec())));
            fields
        }
        Event::Kernel { addr, len, unknown, .. } => {
            let mut fields = vec![("addr", Address(*addr)), ("len", n(*len))];
            if *unknown {
                fields.push(("unknown", n(1)));
            }
            fields
        }
        Event::SyscallRet { number, result } => vec![("number", n(*number)), ("result", Number(i128::from(*result)))],
        Event::Mmap { addr, len, prot, flags, offset, path } => {
            let mut fields = vec![
                ("addr", Address(*addr)),
                ("len", n(*len)),
                ("prot", n(*prot)),
                ("flags", n(*flags)),
                ("offset", n(*offset)),
            ];
            if !path.is_empty() {
                fields.push(("path", Text(path.clone())));
            }
            fields
        }
        Event::Munmap { addr, len } => vec![("addr", Address(*addr)), ("len", n(*len))],
        Event::Mprotect { addr, len, prot } => vec![("addr", Address(*addr)), ("len", n(*len)), ("prot", n(*prot))],
        Event::Signal { number, from, to } => {
            vec![("number", n(*number)), ("pc", Address(*from)), ("handler", Address(*to))]
        }
        Event::Exception { number, from, to, .. } => {
            let mut fields: Vec<_> = number.map(|v| ("number", n(v.into()))).into_iter().collect();
            fields.extend([("pc", Address(*from)), ("handler", Address(*to))]);
            fields
        }
        Event::Context { root, asid } => vec![("root", Address(*root)), ("asid", n(*asid))],
        Event::Moved { from, to, .. } => vec![("from", Address(*from)), ("pc", Address(*to))],
        Event::Halt { pc } | Event::Resume { pc } => vec![("pc", Address(*pc))],
        // Printed as the instructions that they stand for.
        Event::Once { .. } => vec![],
        Event::Regs { set, after, values, .. } => {
            let mut fields = vec![("set", n(*set)), ("values", Addresses(values.clone()))];
            fields.extend(after.then(|| ("when", Text(b"after".to_vec()))));
            fields
        }
        Event::RegSet { set, registers } => vec![("set", n(*set)), ("registers", Text(registers.clone()))],
        Event::User { id, bytes, .. } => vec![("id", n(*id)), ("bytes", Text(bytes.clone()))],
        Event::Image { entry, bias, brk, path } => {
            vec![
                ("pc", Address(*entry)),
                ("bias", Address(*bias)),
                ("brk", Address(*brk)),
                ("path", Text(path.clone())),
            ]
        }
        Event::Guest { pc, what } => {
            let mut fields = vec![("pc", Address(*pc))];
            fields.extend(guest_fields(what));
            fields
        }
    }
}

/// What the guest said through the backdoor.
fn guest_fields(event: &GuestEvent) -> Vec<(&'static str, Field)> {
    use Field::{Address, Addresses, Number, Text};
    let n = |v: u64| Number(i128::from(v));
    let named = |mut fields: Vec<(&'static str, Field)>, name: &[u8]| {
        if !name.is_empty() {
            fields.push(("name", Text(name.to_vec())));
        }
        fields
    };
    match event {
        GuestEvent::Start { scope, depth } | GuestEvent::Stop { scope, depth } => {
            vec![("scope", n(*scope)), ("depth", n(*depth))]
        }
        GuestEvent::RoiBegin { id, name } | GuestEvent::RoiEnd { id, name } | GuestEvent::Define { id, name } => {
            named(vec![("id", n(*id))], name)
        }
        GuestEvent::Event { id, args, name } => named(vec![("id", n(*id)), ("args", Addresses(args.to_vec()))], name),
        GuestEvent::Mark { value, name } => named(vec![("value", n(*value))], name),
        GuestEvent::Log { level, more, text } => {
            vec![("level", n(*level)), ("more", n(u64::from(*more))), ("text", Text(text.clone()))]
        }
        GuestEvent::Send { channel, more, bytes } => {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            vec![("channel", n(*channel)), ("more", n(u64::from(*more))), ("bytes", Text(hex.into_bytes()))]
        }
        GuestEvent::ThreadName { name } => named(vec![], name),
        GuestEvent::Stats { label, .. } => vec![("label", Text(label.clone()))],
        GuestEvent::Symbol { addr, size, name } => named(vec![("addr", Address(*addr)), ("size", n(*size))], name),
        GuestEvent::Call { op, args, result } => {
            vec![("op", Address(*op)), ("args", Addresses(args.to_vec())), ("result", Number(i128::from(*result)))]
        }
    }
}

/// Writes the line of a rarer event.
fn line(out: &mut String, format: Format, stream: usize, ev: &str, fields: &[(&str, Field)]) {
    let _ = match format {
        Format::Text => write!(out, "{stream} {ev:7}"),
        Format::Json => write!(out, "{{\"stream\":{stream},\"ev\":\"{ev}\""),
    };
    for (name, field) in fields {
        let _ = match (format, field) {
            (Format::Text, Field::Address(v)) => write!(out, " {name}={v:#x}"),
            (Format::Text, Field::Number(v)) => write!(out, " {name}={v}"),
            (Format::Text, Field::Text(v)) => write!(out, " {name}={}", quoted(v)),
            (Format::Text, Field::Addresses(v)) => {
                let v: Vec<String> = v.iter().map(|v| format!("{v:#x}")).collect();
                write!(out, " {name}={}", v.join(","))
            }
            (Format::Json, Field::Address(v)) => write!(out, ",\"{name}\":\"{v:#x}\""),
            (Format::Json, Field::Number(v)) => write!(out, ",\"{name}\":{v}"),
            (Format::Json, Field::Text(v)) => write!(out, ",\"{name}\":{}", quoted(v)),
            (Format::Json, Field::Addresses(v)) => {
                let v: Vec<String> = v.iter().map(|v| format!("\"{v:#x}\"")).collect();
                write!(out, ",\"{name}\":[{}]", v.join(","))
            }
        };
    }
    out.push_str(if format == Format::Json { "}\n" } else { "\n" });
}

impl<'o> Consumer for Lines<'o> {
    type Batch = Batch;
    type State = Printer<'o>;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Batch, Error> {
        self.scratch.with(|scratch| {
            scratch.start(chunk);
            let mut writer = Writer {
                batch: Batch { text: String::with_capacity(chunk.len() * 8), marks: Vec::new() },
                format: self.format,
                stream: chunk.stream().number,
                x86: matches!(chunk.table().info().target.as_str(), "x86_64" | "i386"),
                scratch,
            };
            for item in chunk.items() {
                match item? {
                    Item::Block(block) => writer.block(&block),
                    Item::Event(Event::Once { block, insn, count }) => {
                        let info = chunk.table().block(block)?;
                        let first = usize::from(insn);
                        writer.once(info, first..(first + usize::from(count)).min(info.insns.len()));
                    }
                    Item::Event(event @ (Event::Regs { block, insn, .. } | Event::User { block, insn, .. })) => {
                        let insn = chunk.table().known(block).and_then(|b| b.insns.get(usize::from(insn)));
                        writer.note(insn.map(|i| i.pc), &event);
                    }
                    Item::Event(event) => writer.event(&event),
                }
            }
            Ok(writer.batch)
        })
    }

    fn reduce(&self, printer: &mut Printer<'o>, stream: &Stream, batch: Batch) -> Result<(), Error> {
        let text = batch.text.as_bytes();
        let mut printed = 0;
        if !batch.marks.is_empty() {
            let unfinished = printer.unfinished.entry(stream.number).or_default();
            for mark in batch.marks {
                let before = unfinished.iter().rposition(|pc| *pc == mark.pc);
                if let Some(i) = before {
                    unfinished.truncate(i + usize::from(mark.continued));
                    printer.out.write_all(&text[printed..mark.line.start])?;
                    printed = mark.line.end;
                } else if mark.continued {
                    if unfinished.len() == MOST_UNFINISHED {
                        unfinished.remove(0);
                    }
                    unfinished.push(mark.pc);
                }
            }
        }
        printer.out.write_all(&text[printed..])?;
        // What happened is visible at once.
        Ok(printer.out.flush()?)
    }

    fn lost(&self, printer: &mut Printer<'o>, stream: &Stream, chunks: u64) -> Result<(), Error> {
        printer.unfinished.remove(&stream.number);
        let mut text = String::new();
        line(&mut text, self.format, stream.number, "lost", &[("chunks", Field::Number(i128::from(chunks)))]);
        Ok(printer.out.write_all(text.as_bytes())?)
    }

    fn ended(&self, printer: &mut Printer<'o>, stream: &Stream) -> Result<(), Error> {
        printer.unfinished.remove(&stream.number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer::layout::{FLAG_ABORTED, FLAG_REEXEC, FLAG_SPLIT, INSN_ONCE, info, kind};
    use consumer::testing::{ChunkBuilder, Parts, TableBuilder, TestInsn, insn, load, store, with_path};

    fn trace(format: Format, table: TableBuilder, chunks: &[Vec<u64>]) -> Vec<String> {
        let table = table.finish();
        let print = |workers| {
            let mut out = Vec::new();
            let mut analysis = Args::default().analysis(format);
            analysis.consume(&mut Parts::new(&table, chunks), &Options { workers }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let one = print(1);
        assert_eq!(one, print(3));
        one.lines().map(str::to_string).collect()
    }

    #[test]
    fn lines_are_what_users_compare() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(
            0x401000,
            &[
                insn(&[0x8b, 0x07], &[load(4).with(info::VALUE)]),
                insn(&[0xf0, 0x48, 0x0f, 0xc1, 0x07], &[load(8).with(info::ATOMIC), store(8).with(info::ATOMIC)]),
            ],
        );
        let chunk = ChunkBuilder::new()
            .record(kind::START, &[7, 8, 0, 0, 99])
            .record(kind::IMAGE, &with_path(&[0x401000, 0, 0x5000], "/bin/\"x"))
            .block(b, &[0x7ff0, 0xffff_ffff_1234_5678, 0x8000, 0x8000])
            .record(kind::SYSCALL, &[0x401007, 60, 1, 2, 3, 4, 5, 6, 7, 8])
            .record(kind::SYSCALL_RET, &[60, (-2i64) as u64])
            .record(kind::SYSCALL, &with_path(&[0x401007, 0, 1, 2, 3, 4, 5, 6, 7, 8], "read"))
            .record(kind::KERNEL_WRITE, &[0x7ff0, 16, 0])
            .record(kind::KERNEL_READ, &[0x8000, 0, 1])
            .record(kind::END, &[1, 3]);
        assert_eq!(
            trace(Format::Json, t, &[chunk.words()]),
            [
                r#"{"stream":0,"ev":"start","pid":7,"tid":8,"parent":0,"wall_ns":99}"#,
                r#"{"stream":0,"ev":"image","pc":"0x401000","bias":"0x0","brk":"0x5000","path":"/bin/\"x"}"#,
                r#"{"stream":0,"ev":"fetch","pc":"0x401000","len":2,"bytes":"8b07","text":"mov eax, [rdi]"}"#,
                r#"{"stream":0,"ev":"load","pc":"0x401000","addr":"0x7ff0","size":4,"value":"0x12345678"}"#,
                r#"{"stream":0,"ev":"fetch","pc":"0x401002","len":5,"bytes":"f0480fc107","text":"lock xadd [rdi], rax"}"#,
                r#"{"stream":0,"ev":"load","pc":"0x401002","addr":"0x8000","size":8,"atomic":true}"#,
                r#"{"stream":0,"ev":"store","pc":"0x401002","addr":"0x8000","size":8,"atomic":true}"#,
                r#"{"stream":0,"ev":"syscall","pc":"0x401007","number":60,"args":["0x1","0x2","0x3","0x4","0x5","0x6","0x7","0x8"]}"#,
                r#"{"stream":0,"ev":"syscall_ret","number":60,"result":-2}"#,
                r#"{"stream":0,"ev":"syscall","pc":"0x401007","number":0,"name":"read","args":["0x1","0x2","0x3","0x4","0x5","0x6","0x7","0x8"]}"#,
                r#"{"stream":0,"ev":"kernel_write","addr":"0x7ff0","len":16}"#,
                r#"{"stream":0,"ev":"kernel_read","addr":"0x8000","len":0,"unknown":1}"#,
                r#"{"stream":0,"ev":"end","reason":"exit","code":3}"#,
            ]
        );
    }

    fn rep() -> TestInsn {
        insn(&[0xf3, 0xa4], &[])
    }

    #[test]
    fn a_repeat_loop_is_fetched_once_across_chunks_and_a_signal() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(0x1000, &[rep()]);
        let handler = t.block(0x9000, &[insn(&[0xc3], &[load(8)])]);
        let chunks = [
            ChunkBuilder::new()
                .partial(b, 0, FLAG_REEXEC, 0, &[])
                .access(b, 0, &[1, 0x10, 1 | info::STORE, 0x20])
                .words(),
            ChunkBuilder::new()
                .record(kind::SIGNAL, &[14, 0x1000, 0x9000])
                .block(handler, &[0x30])
                .partial(b, 0, FLAG_SPLIT, 0, &[])
                .access(b, 0, &[1, 0x11])
                .words(),
            ChunkBuilder::new().cont(0, 0).block(b, &[]).access(b, 0, &[1 | info::STORE, 0x21]).words(),
            // Another execution, with nothing to move.
            ChunkBuilder::new().block(b, &[]).words(),
        ];
        assert_eq!(
            trace(Format::Text, t, &chunks),
            [
                "0 fetch   0x1000 2 f3a4             rep movsb [rdi], [rsi]",
                "0 load    0x1000 0x10 1",
                "0 store   0x1000 0x20 1",
                "0 signal  number=14 pc=0x1000 handler=0x9000",
                "0 fetch   0x9000 1 c3               ret",
                "0 load    0x9000 0x30 8",
                "0 load    0x1000 0x11 1",
                "0 store   0x1000 0x21 1",
                "0 fetch   0x1000 2 f3a4             rep movsb [rdi], [rsi]",
            ]
        );
    }

    #[test]
    fn a_faulting_push_of_memory_keeps_its_load_and_is_aborted() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(0x1000, &[insn(&[0x90], &[]), insn(&[0xff, 0x30], &[load(8), store(8)])]);
        let chunk = ChunkBuilder::new().partial(b, 1, FLAG_ABORTED, 1, &[0x40, 0]).words();
        assert_eq!(
            trace(Format::Text, t, &[chunk]),
            [
                "0 fetch   0x1000 1 90               nop",
                "0 aborted 0x1001 2 ff30             push qword ptr [rax]",
                "0 load    0x1001 0x40 8"
            ]
        );
    }

    #[test]
    fn a_reexecution_without_accesses_prints_nothing() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(0x1000, &[insn(&[0x89, 0x07], &[store(4)])]);
        let chunk = ChunkBuilder::new().partial(b, 0, FLAG_REEXEC, 0, &[0]).block(b, &[0x40]).words();
        assert_eq!(
            trace(Format::Text, t, &[chunk]),
            ["0 fetch   0x1000 2 8907             mov [rdi], eax", "0 store   0x1000 0x40 4"]
        );
    }

    #[test]
    fn accesses_of_helpers_come_between_the_slots_in_program_order() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(0x1000, &[insn(&[0x0f, 0xae, 0x07], &[load(8), store(8)])]);
        let order = |n: u64| n << info::ORDER_SHIFT;
        let chunk = ChunkBuilder::new()
            .block(b, &[1, 2])
            .access(b, 0, &[16 | info::STORE | order(1), 0x55, 16 | info::STORE | info::FOOTPRINT | order(2), 0x66])
            .words();
        let lines = trace(Format::Text, t, &[chunk]);
        assert_eq!(
            lines[1..],
            [
                "0 load    0x1000 0x1 8",
                "0 store   0x1000 0x55 16",
                "0 store   0x1000 0x2 8",
                "0 store   0x1000 0x66 16 footprint"
            ]
        );
    }

    #[test]
    fn only_what_is_traced_is_printed_and_once_is_once() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let untraced = TestInsn { flags: 0, ..insn(&[0x90], &[]) };
        let once = TestInsn { flags: INSN_ONCE, ..insn(&[0xf8], &[]) };
        let b = t.block(0x1000, &[untraced, once]);
        let chunk =
            ChunkBuilder::new().block(b, &[]).record(kind::ONCE, &[u64::from(b) << 32 | 1 << 16]).block(b, &[]).words();
        assert_eq!(trace(Format::Text, t, &[chunk]), ["0 fetch   0x1001 1 f8               clc"]);
    }
}
