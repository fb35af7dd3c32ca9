//! Tables in Parquet's columns, for what queries them: DuckDB, Polars, Spark.
//!
//! ```text
//! FOLDER/events/stream=S/interval=I/events.parquet     runs of blocks, and accesses, in program order
//! FOLDER/blocks/stream=S/blocks.parquet                the instructions of each block that ran in the stream
//! FOLDER/mappings/stream=S/mappings.parquet            images, and what mmap, munmap and mprotect did
//! FOLDER/streams/stream=S/streams.parquet              one row: the thread
//! ```
//!
//! Rules:
//! * An event belongs to the interval of its instruction: a run that an interval's end cuts is two rows, so that sums over intervals are exact.
//! * Memory does not grow with the stream: rows go out in groups of 2^18; only the set of blocks seen stays.
//! * A file is there only if it has rows.

use crate::linear::{Feed, Insn, branch_at};
use crate::sink::Spread;
use consumer::{BlockInfo, Error, Event, Stream, TableInfo};
use decode::{Class, Target};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Rows of a row group: readers work on one a thread, and ask for 10^5 at least.
const GROUP: usize = 1 << 18;

const EVENTS: &str = "message events {
    required int64 insn (INTEGER(64,false));
    required binary kind (STRING);
    required int64 pc (INTEGER(64,false));
    required int32 block (INTEGER(32,false));
    required int32 index (INTEGER(32,false));
    optional int32 insns (INTEGER(32,false));
    optional int64 addr (INTEGER(64,false));
    optional int32 size (INTEGER(32,false));
    optional int64 value (INTEGER(64,false));
    optional int64 value_high (INTEGER(64,false));
}";
const BLOCKS: &str = "message blocks {
    required int32 block (INTEGER(32,false));
    required int32 index (INTEGER(32,false));
    required int64 pc (INTEGER(64,false));
    required binary code;
    required binary class (STRING);
}";
const MAPPINGS: &str = "message mappings {
    required int64 insn (INTEGER(64,false));
    required binary kind (STRING);
    required int64 addr (INTEGER(64,false));
    optional int64 len (INTEGER(64,false));
    optional int64 prot (INTEGER(64,false));
    optional int64 flags (INTEGER(64,false));
    optional int64 offset (INTEGER(64,false));
    optional int64 entry (INTEGER(64,false));
    optional int64 brk (INTEGER(64,false));
    optional binary path;
}";
const STREAMS: &str = "message streams {
    required int32 pid (INTEGER(32,false));
    required int32 tid (INTEGER(32,false));
    required int32 vcpu (INTEGER(32,false));
    required binary target (STRING);
    required binary program;
    required int64 insns (INTEGER(64,false));
}";

/// A value of a row.
#[derive(Clone, Copy)]
enum Cell<'a> {
    Long(u64),
    Int(u32),
    Name(&'static str),
    Bytes(&'a [u8]),
    Null,
}

impl Cell<'_> {
    fn maybe(value: Option<u64>) -> Self {
        value.map_or(Cell::Null, Cell::Long)
    }
}

enum Values {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Bytes(Vec<ByteArray>),
}

struct Column {
    values: Values,
    /// By row, for a column with nulls: 1 if there is a value.
    present: Option<Vec<i16>>,
}

/// A file, made when its first row comes.
struct Table {
    path: PathBuf,
    schema: &'static str,
    columns: Vec<Column>,
    /// In the group that is being filled, and in all.
    rows: usize,
    total: u64,
    writer: Option<SerializedFileWriter<File>>,
}

impl Table {
    fn new(path: PathBuf, schema: &'static str) -> Table {
        Table { path, schema, columns: Vec::new(), rows: 0, total: 0, writer: None }
    }

    fn wrong(&self, e: impl std::fmt::Display) -> Error {
        Error::Consumer(format!("cannot write {}: {e}", self.path.display()))
    }

    fn create(&mut self) -> Result<(), Error> {
        let schema = Arc::new(parse_message_type(self.schema).map_err(|e| self.wrong(e))?);
        self.columns = schema
            .get_fields()
            .iter()
            .map(|field| Column {
                values: match field.get_physical_type() {
                    parquet::basic::Type::INT64 => Values::Long(Vec::new()),
                    parquet::basic::Type::INT32 => Values::Int(Vec::new()),
                    _ => Values::Bytes(Vec::new()),
                },
                present: field.is_optional().then(Vec::new),
            })
            .collect();
        // They only rise.
        let insn = ColumnPath::from("insn");
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(|e| self.wrong(e))?))
            .set_created_by(concat!("trapline ", env!("CARGO_PKG_VERSION")).into())
            .set_column_dictionary_enabled(insn.clone(), false)
            .set_column_encoding(insn, Encoding::DELTA_BINARY_PACKED)
            .build();
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| self.wrong(e))?;
        }
        let file = File::create(&self.path).map_err(|e| self.wrong(e))?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(|e| self.wrong(e))?;
        self.writer = Some(writer);
        Ok(())
    }

    /// A row, in the schema's order.
    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), Error> {
        if self.writer.is_none() {
            self.create()?;
        }
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (&mut column.values, *cell) {
                (Values::Long(v), Cell::Long(n)) => v.push(n as i64),
                (Values::Int(v), Cell::Int(n)) => v.push(n as i32),
                (Values::Bytes(v), Cell::Name(text)) => v.push(bytes::Bytes::from_static(text.as_bytes()).into()),
                (Values::Bytes(v), Cell::Bytes(b)) => v.push(b.to_vec().into()),
                (_, Cell::Null) if column.present.is_some() => {}
                _ => return Err(Error::Consumer(format!("a row does not fit {}", self.schema))),
            }
            if let Some(present) = &mut column.present {
                present.push(i16::from(!matches!(cell, Cell::Null)));
            }
        }
        self.rows += 1;
        self.total += 1;
        if self.rows == GROUP { self.group() } else { Ok(()) }
    }

    /// Writes the rows that have come.
    fn group(&mut self) -> Result<(), Error> {
        let written = self.write_group();
        written.map_err(|e| self.wrong(e))
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let mut group = writer.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut to) = group.next_column()? else { break };
            let present = column.present.as_deref();
            match &mut column.values {
                Values::Long(v) => {
                    to.typed::<Int64Type>().write_batch(v, present, None)?;
                    v.clear();
                }
                Values::Int(v) => {
                    to.typed::<Int32Type>().write_batch(v, present, None)?;
                    v.clear();
                }
                Values::Bytes(v) => {
                    to.typed::<ByteArrayType>().write_batch(v, present, None)?;
                    v.clear();
                }
            }
            to.close()?;
            if let Some(present) = &mut column.present {
                present.clear();
            }
        }
        group.close()?;
        Ok(())
    }

    /// Completes the file; its bytes and rows.
    fn finish(mut self) -> Result<(u64, u64), Error> {
        self.group()?;
        let Some(mut writer) = self.writer.take() else { return Ok((0, 0)) };
        writer.finish().map_err(|e| self.wrong(e))?;
        Ok((writer.bytes_written() as u64, self.total))
    }
}

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Streams that were seen.
    pub streams: usize,
    /// Streams that were left out.
    pub left_out: u64,
    /// Rows of `events`.
    pub events: u64,
    /// Files.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// The feed.
pub struct Columnar {
    folder: PathBuf,
    spread: Spread,
    interval: u64,
    totals: Mutex<Totals>,
}

impl Columnar {
    /// Writes to `folder`, in intervals of `interval` instructions.
    ///
    /// # Errors
    /// If there are tables already.
    pub fn new(folder: &Path, spread: Spread, interval: u64) -> Result<Columnar, Error> {
        if folder.as_os_str() == "-" {
            return Err(Error::Consumer("Parquet tables are files in a folder, not a pipe: -o FOLDER".into()));
        }
        for table in ["events", "blocks", "mappings", "streams"] {
            let there = folder.join(table);
            if there.exists() {
                let there = there.display();
                return Err(Error::Consumer(format!(
                    "{there} is there already, and queries would mix its rows with new ones: -o another folder"
                )));
            }
        }
        std::fs::create_dir_all(folder)
            .map_err(|e| Error::Consumer(format!("cannot make the folder {}: {e}", folder.display())))?;
        Ok(Columnar { folder: folder.to_path_buf(), spread, interval: interval.max(1), totals: Mutex::default() })
    }

    /// Over all streams.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn table(&self, name: &str, stream: usize, schema: &'static str) -> Table {
        Table::new(self.folder.join(format!("{name}/stream={stream}/{name}.parquet")), schema)
    }

    fn finish(&self, table: Table, events: bool) -> Result<(), Error> {
        let (bytes, rows) = table.finish()?;
        let mut totals = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        totals.bytes += bytes;
        totals.files += u64::from(rows > 0);
        totals.events += if events { rows } else { 0 };
        Ok(())
    }

    fn events(&self, stream: usize, interval: u64) -> Table {
        let path = format!("events/stream={stream}/interval={interval}/events.parquet");
        Table::new(self.folder.join(path), EVENTS)
    }
}

/// Instructions of a block, one after the other.
#[derive(Clone, Copy)]
struct Run {
    block: u32,
    pc: u64,
    first: u64,
    index: u32,
    insns: u32,
}

/// An access that waits for its run's row.
struct Made {
    insn: u64,
    pc: u64,
    block: u32,
    access: consumer::Access,
}

/// Of a stream that is written.
struct Writing {
    number: usize,
    target: String,
    events: Table,
    interval: u64,
    blocks: Table,
    mappings: Table,
    known: HashSet<u32>,
    run: Option<Run>,
    accesses: Vec<Made>,
    insns: u64,
}

impl Writing {
    /// Writes the run and what it accessed.
    fn end_run(&mut self) -> Result<(), Error> {
        let Some(run) = self.run.take() else { return Ok(()) };
        self.events.row(&[
            Cell::Long(run.first),
            Cell::Name("block"),
            Cell::Long(run.pc),
            Cell::Int(run.block),
            Cell::Int(run.index),
            Cell::Int(run.insns),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
        ])?;
        for Made { insn, pc, block, access } in self.accesses.drain(..) {
            self.events.row(&[
                Cell::Long(insn),
                Cell::Name(if access.is_store() { "store" } else { "load" }),
                Cell::Long(pc),
                Cell::Int(block),
                Cell::Int(u32::from(access.insn)),
                Cell::Null,
                Cell::Long(access.addr),
                Cell::Int(access.size),
                Cell::maybe(access.value.map(|v| v as u64)),
                Cell::maybe(access.value.filter(|_| access.size > 8).map(|v| (v >> 64) as u64)),
            ])?;
        }
        Ok(())
    }
}

/// Of a stream; nothing if it is left out.
pub struct State(Option<Box<Writing>>);

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Other => "other",
        Class::CondBranch => "conditional",
        Class::Jump => "jump",
        Class::IndirectJump => "indirect_jump",
        Class::Call => "call",
        Class::IndirectCall => "indirect_call",
        Class::Return => "return",
        Class::Unknown => "unknown",
    }
}

impl Feed for Columnar {
    /// By instruction.
    type Block = Box<[&'static str]>;
    type State = State;

    fn begin(&self, _: &Stream, table: &TableInfo) -> Result<State, Error> {
        let number = {
            let mut totals = self.totals.lock().unwrap_or_else(|e| e.into_inner());
            totals.streams += 1;
            if self.spread == Spread::First && totals.streams > 1 {
                totals.left_out += 1;
                return Ok(State(None));
            }
            totals.streams - 1
        };
        Ok(State(Some(Box::new(Writing {
            number,
            target: table.target.clone(),
            events: self.events(number, 0),
            interval: 0,
            blocks: self.table("blocks", number, BLOCKS),
            mappings: self.table("mappings", number, MAPPINGS),
            known: HashSet::new(),
            run: None,
            accesses: Vec::new(),
            insns: 0,
        }))))
    }

    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Self::Block {
        let target = Target::named(&table.target);
        (0..block.insns.len())
            .map(|i| {
                let otherwise = if target.is_some() { Class::Other } else { Class::Unknown };
                class_name(branch_at(target, block, i).map_or(otherwise, |b| b.class))
            })
            .collect()
    }

    fn insn(&self, state: &mut State, classes: &Self::Block, insn: &Insn<'_>) -> Result<(), Error> {
        let Some(w) = &mut state.0 else { return Ok(()) };
        let (block, index, pc) = (insn.block.id, insn.index as u32, insn.pc());
        let interval = insn.number / self.interval;
        if interval != w.interval {
            w.end_run()?;
            let done = std::mem::replace(&mut w.events, self.events(w.number, interval));
            self.finish(done, true)?;
            w.interval = interval;
        }
        match &mut w.run {
            Some(run) if run.block == block && run.index + run.insns == index => run.insns += 1,
            _ => {
                w.end_run()?;
                w.run = Some(Run { block, pc, first: insn.number, index, insns: 1 });
                if w.known.insert(block) {
                    for (i, class) in classes.iter().enumerate() {
                        w.blocks.row(&[
                            Cell::Int(block),
                            Cell::Int(i as u32),
                            Cell::Long(insn.block.insns[i].pc),
                            Cell::Bytes(insn.block.bytes(i)),
                            Cell::Name(class),
                        ])?;
                    }
                }
            }
        }
        w.accesses.extend(insn.accesses.iter().map(|a| Made { insn: insn.number, pc, block, access: *a }));
        w.insns = insn.number + 1;
        Ok(())
    }

    fn event(&self, state: &mut State, event: &Event) -> Result<(), Error> {
        let Some(w) = &mut state.0 else { return Ok(()) };
        let mapping = |kind, addr, rest: [Option<u64>; 6], path| {
            let [len, prot, flags, offset, entry, brk] = rest.map(Cell::maybe);
            [Cell::Long(w.insns), Cell::Name(kind), Cell::Long(addr), len, prot, flags, offset, entry, brk, path]
        };
        let row = match event {
            Event::Mmap { addr, len, prot, flags, offset, path } => {
                let path = if path.is_empty() { Cell::Null } else { Cell::Bytes(path) };
                mapping("mmap", *addr, [Some(*len), Some(*prot), Some(*flags), Some(*offset), None, None], path)
            }
            Event::Munmap { addr, len } => {
                mapping("munmap", *addr, [Some(*len), None, None, None, None, None], Cell::Null)
            }
            Event::Mprotect { addr, len, prot } => {
                mapping("mprotect", *addr, [Some(*len), Some(*prot), None, None, None, None], Cell::Null)
            }
            Event::Image { entry, bias, brk, path } => {
                mapping("image", *bias, [None, None, None, None, Some(*entry), Some(*brk)], Cell::Bytes(path))
            }
            _ => return Ok(()),
        };
        w.mappings.row(&row)
    }

    fn end(&self, state: State, stream: &Stream, insns: u64) -> Result<(), Error> {
        let Some(mut w) = state.0 else { return Ok(()) };
        w.end_run()?;
        let mut streams = self.table("streams", w.number, STREAMS);
        streams.row(&[
            Cell::Int(stream.process.pid),
            Cell::Int(stream.tid),
            Cell::Int(stream.vcpu),
            Cell::Bytes(w.target.as_bytes()),
            Cell::Bytes(&stream.process.program),
            Cell::Long(insns),
        ])?;
        self.finish(streams, false)?;
        self.finish(w.events, true)?;
        self.finish(w.blocks, false)?;
        self.finish(w.mappings, false)
    }
}
