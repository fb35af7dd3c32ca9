//! Where feeds write: a file for each stream, compressed as its suffix says, by a thread of its own.

use consumer::{Error, Stream};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// How streams are spread over outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Spread {
    /// A file for each
    #[default]
    Each,
    /// Only the first, the program's main thread
    First,
    /// All in one, in the order in which they were handed over
    Merged,
}

/// Bytes that are handed to the compressing thread at a time.
const BUFFER: usize = 1 << 20;

/// Outputs by stream.
pub struct Outputs {
    path: PathBuf,
    spread: Spread,
    /// The file that a folder gets for a stream ends so.
    suffix: &'static str,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    streams: usize,
    left_out: u64,
    files: Vec<PathBuf>,
    names: BTreeSet<PathBuf>,
    bytes: u64,
}

impl Outputs {
    /// Outputs at `path`: `-` is standard output, a folder (or a path that ends in `/`) gets files by process and thread, ending in `suffix`; another path is the first
    /// stream's file, and gets a number before its suffixes for the others.
    pub fn new(path: &Path, spread: Spread, suffix: &'static str) -> Result<Outputs, Error> {
        if is_folder(path) {
            std::fs::create_dir_all(path).map_err(|e| at("make the folder", path, e))?;
        }
        Ok(Outputs { path: path.to_path_buf(), spread, suffix, seen: Mutex::default() })
    }

    /// How streams are spread.
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// A stream's output; `None` if it is left out.
    pub fn open(&self, stream: &Stream) -> Result<Option<Sink>, Error> {
        let mut seen = self.seen.lock().unwrap_or_else(|e| e.into_inner());
        seen.streams += 1;
        let number = seen.streams;
        let standard = self.path.as_os_str() == "-";
        if number > 1 && (standard || self.spread == Spread::First) {
            seen.left_out += 1;
            return Ok(None);
        }
        if standard {
            return Ok(Some(Sink::new(Box::new(io::stdout()), Path::new("-"))));
        }
        let path = if is_folder(&self.path) {
            let program = stream.process.program.rsplit(|b| *b == b'/').next().unwrap_or_default();
            let name: String =
                program.iter().map(|b| if b.is_ascii_alphanumeric() { char::from(*b) } else { '_' }).collect();
            let base = format!("{name}.{}.{}", stream.process.pid, stream.tid);
            let mut path = self.path.join(format!("{base}{}", self.suffix));
            // Numbers of threads come again.
            let mut again = 2;
            while seen.names.contains(&path) {
                path = self.path.join(format!("{base}.{again}{}", self.suffix));
                again += 1;
            }
            path
        } else {
            numbered(&self.path, number)
        };
        let file = File::create(&path).map_err(|e| at("write", &path, e))?;
        let sink = Sink::of(file, &path)?;
        seen.names.insert(path.clone());
        seen.files.push(path);
        Ok(Some(sink))
    }

    /// A stream's output is complete.
    pub fn closed(&self, bytes: u64) {
        self.seen.lock().unwrap_or_else(|e| e.into_inner()).bytes += bytes;
    }

    /// Files that were written, streams that were left out, bytes before compression.
    pub fn written(&self) -> (Vec<PathBuf>, u64, u64) {
        let seen = self.seen.lock().unwrap_or_else(|e| e.into_inner());
        (seen.files.clone(), seen.left_out, seen.bytes)
    }
}

/// What is written of each stream by itself, or of all together.
pub struct Shared<L>(Option<Mutex<Option<L>>>);

impl<L> Shared<L> {
    /// As `outputs` are spread.
    pub fn new(outputs: &Outputs) -> Self {
        Shared((outputs.spread() == Spread::Merged).then(Mutex::default))
    }

    /// A stream begins: what is its own, if it has its own. `open` is called for it, or for the first of all.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn begin(&self, open: impl FnOnce() -> Result<L, Error>) -> Result<Option<L>, Error> {
        let Some(shared) = &self.0 else { return open().map(Some) };
        let mut shared = shared.lock().unwrap_or_else(|e| e.into_inner());
        if shared.is_none() {
            *shared = Some(open()?);
        }
        Ok(None)
    }

    /// Does something with a stream's `own`, or with what all share.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn with(&self, own: &mut Option<L>, f: impl FnOnce(&mut L) -> Result<(), Error>) -> Result<(), Error> {
        match (own, &self.0) {
            (Some(own), _) => f(own),
            (None, Some(shared)) => shared.lock().unwrap_or_else(|e| e.into_inner()).as_mut().map_or(Ok(()), f),
            (None, None) => Ok(()),
        }
    }

    /// What all share, after the last stream.
    pub fn take(&self) -> Option<L> {
        self.0.as_ref().and_then(|shared| shared.lock().unwrap_or_else(|e| e.into_inner()).take())
    }
}

fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// `t.champsim.xz` for the first stream, `t.2.champsim.xz` for the second.
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return path.to_path_buf();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, suffixes) = match name.get(1..).and_then(|n| n.find('.')) {
        Some(dot) => name.split_at(dot + 1),
        None => (&*name, ""),
    };
    path.with_file_name(format!("{stem}.{number}{suffixes}"))
}

fn at(doing: &str, path: &Path, e: io::Error) -> Error {
    Error::Consumer(format!("cannot {doing} {}: {e}", path.display()))
}

/// What a compressor must be able to do.
trait Finish: Write + Send {
    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl Finish for io::Stdout {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()
    }
}
impl Finish for BufWriter<File> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()
    }
}
macro_rules! finishes {
    ($($type:ty),*) => {
        $(impl Finish for $type {
            fn finish(self: Box<Self>) -> io::Result<()> {
                (*self).finish()?.flush()
            }
        })*
    };
}
finishes!(liblzma::write::XzEncoder<BufWriter<File>>, zstd::stream::write::Encoder<'static, BufWriter<File>>);
impl Finish for lz4_flex::frame::FrameEncoder<BufWriter<File>> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        (*self).finish().map_err(io::Error::other)?.flush()
    }
}

/// Packs a piece of what is written into a whole of its own.
type Pack = fn(&[u8]) -> io::Result<Vec<u8>>;

/// A member of a gzip file (RFC 1952: a file is a series of them).
fn gzip(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(piece)?;
    encoder.finish()
}

/// A stream of a bzip2 file, which may have several.
fn bzip2(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    encoder.write_all(piece)?;
    encoder.finish()
}

/// A piece that is to be packed, and where it goes then.
type Piece = (Vec<u8>, Sender<io::Result<Vec<u8>>>);

/// Packs pieces by several threads, of formats whose files are series of packed pieces.
struct Pieces {
    to: BufWriter<File>,
    pieces: Sender<Piece>,
    take: Receiver<Piece>,
    packed: VecDeque<Receiver<io::Result<Vec<u8>>>>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
    pack: Pack,
    empty: bool,
}

impl Pieces {
    /// Packs to `to` by at most `most` threads, which start when there is something for them.
    fn new(to: BufWriter<File>, most: usize, pack: Pack) -> Pieces {
        let (pieces, take) = bounded::<Piece>(most);
        Pieces { to, pieces, take, packed: VecDeque::new(), threads: Vec::new(), most, pack, empty: true }
    }

    fn start(&mut self) {
        let (take, pack) = (self.take.clone(), self.pack);
        self.threads.push(std::thread::spawn(move || {
            for (piece, give) in take {
                // Who waits for it is gone only if writing has failed.
                let _ = give.send(pack(&piece));
            }
        }));
    }

    fn put_first(&mut self) -> io::Result<()> {
        let Some(packed) = self.packed.pop_front() else { return Ok(()) };
        let gone = || io::Error::other("a thread that packs panicked");
        self.to.write_all(&packed.recv().map_err(|_| gone())??)
    }
}

impl Write for Pieces {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        // Nobody waits for ever: as many are under way as there are threads, and as many are packed.
        if self.packed.len() >= 2 * self.most {
            self.put_first()?;
        }
        if self.threads.len() < self.most && self.packed.len() >= self.threads.len() {
            self.start();
        }
        let (give, packed) = bounded(1);
        self.pieces.send((piece.to_vec(), give)).map_err(io::Error::other)?;
        self.packed.push_back(packed);
        self.empty = false;
        Ok(piece.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Finish for Pieces {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        while !self.packed.is_empty() {
            self.put_first()?;
        }
        // Nothing, packed, is something.
        if self.empty {
            let nothing = (self.pack)(&[])?;
            self.to.write_all(&nothing)?;
        }
        drop((self.pieces, self.take));
        self.threads.into_iter().for_each(|t| drop(t.join()));
        self.to.flush()
    }
}

type Thread = (Sender<Vec<u8>>, JoinHandle<io::Result<()>>);

/// A stream's output.
pub struct Sink {
    buffer: Vec<u8>,
    bytes: u64,
    path: PathBuf,
    /// `None` once it is finished.
    thread: Option<Thread>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl Sink {
    fn of(file: File, path: &Path) -> Result<Sink, Error> {
        let writer = BufWriter::with_capacity(1 << 16, file);
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let suffix = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let writer: Box<dyn Finish> = match suffix.as_str() {
            "gz" => Box::new(Pieces::new(writer, threads, gzip)),
            "bz2" => Box::new(Pieces::new(writer, threads, bzip2)),
            "xz" => {
                let stream = liblzma::stream::MtStreamBuilder::new()
                    .preset(3)
                    .check(liblzma::stream::Check::Crc32)
                    .threads(threads as u32)
                    .encoder()
                    .map_err(|e| at("compress", path, e.into()))?;
                Box::new(liblzma::write::XzEncoder::new_stream(writer, stream))
            }
            "zst" | "zstd" => {
                let mut encoder = zstd::stream::write::Encoder::new(writer, 3).map_err(|e| at("compress", path, e))?;
                encoder.multithread(threads as u32).map_err(|e| at("compress", path, e))?;
                Box::new(encoder)
            }
            "lz4" => Box::new(lz4_flex::frame::FrameEncoder::new(writer)),
            _ => Box::new(writer),
        };
        Ok(Sink::new(writer, path))
    }

    fn new(mut writer: Box<dyn Finish>, path: &Path) -> Sink {
        let (give, take) = bounded::<Vec<u8>>(4);
        let failed = Arc::new(Mutex::new(None));
        let note = failed.clone();
        let thread = std::thread::spawn(move || {
            let written = take.iter().try_for_each(|buffer| writer.write_all(&buffer)).and_then(|()| writer.finish());
            if let Err(e) = &written {
                *note.lock().unwrap_or_else(|e| e.into_inner()) = Some(io::Error::new(e.kind(), e.to_string()));
            }
            written
        });
        Sink {
            buffer: Vec::with_capacity(BUFFER),
            bytes: 0,
            path: path.to_path_buf(),
            thread: Some((give, thread)),
            failed,
        }
    }

    /// Where bytes are put; call [`Sink::put`] after it.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands over what is in the buffer if it is enough.
    pub fn put(&mut self) -> Result<(), Error> {
        if self.buffer.len() >= BUFFER { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        self.bytes += self.buffer.len() as u64;
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(BUFFER));
        let gone = self.thread.as_ref().is_none_or(|(give, _)| give.send(full).is_err());
        if gone {
            let e = self.failed.lock().unwrap_or_else(|e| e.into_inner()).take();
            return Err(self.error(e.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())));
        }
        Ok(())
    }

    fn error(&self, e: io::Error) -> Error {
        // Whoever read it has seen enough.
        if e.kind() == io::ErrorKind::BrokenPipe { Error::Output(e) } else { at("write", &self.path, e) }
    }

    /// Writes the rest; how many bytes there were before compression.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.hand_over()?;
        let Some((give, thread)) = self.thread.take() else { return Ok(self.bytes) };
        drop(give);
        match thread.join() {
            Ok(Ok(())) => Ok(self.bytes),
            Ok(Err(e)) => Err(self.error(e)),
            Err(_) => Err(Error::Consumer(format!("the thread that writes {} panicked", self.path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packed by several threads: in order, and nothing is a file, too.
    #[test]
    fn pieces_are_in_order() {
        use std::io::Read;
        for pieces in [0, 1, 40usize] {
            for threads in [1, 3] {
                for (pack, gz) in [(gzip as Pack, true), (bzip2, false)] {
                    let path =
                        std::env::temp_dir().join(format!("trapline-sink-{}-{pieces}-{threads}", std::process::id()));
                    let file = BufWriter::new(File::create(&path).unwrap());
                    let mut to = Box::new(Pieces::new(file, threads, pack));
                    let mut want = Vec::new();
                    for i in 0..pieces {
                        // Of different lengths, so that they take different times.
                        let piece = vec![i as u8; 1 + (i * 7919) % 50_000];
                        to.write_all(&piece).unwrap();
                        want.extend(piece);
                    }
                    assert!(to.threads.len() <= threads.min(pieces));
                    to.finish().unwrap();
                    let file = File::open(&path).unwrap();
                    let mut reader: Box<dyn Read> = match gz {
                        true => Box::new(flate2::read::MultiGzDecoder::new(file)),
                        false => Box::new(bzip2::read::MultiBzDecoder::new(file)),
                    };
                    let mut got = Vec::new();
                    reader.read_to_end(&mut got).unwrap();
                    assert!(got == want, "{pieces} pieces by {threads}");
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
    }

    #[test]
    fn numbers_stand_before_the_suffixes() {
        for (path, number, want) in [
            ("a/t.champsim.xz", 1, "a/t.champsim.xz"),
            ("a/t.champsim.xz", 2, "a/t.2.champsim.xz"),
            ("t", 3, "t.3"),
            (".hidden", 2, ".hidden.2"),
            ("a.b/c", 2, "a.b/c.2"),
        ] {
            assert_eq!(numbered(Path::new(path), number), Path::new(want));
        }
    }
}
