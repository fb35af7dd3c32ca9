//! Recordings: what a receiver hands out, in a file, and played back as a source.
//!
//! A file is a header of 16 bytes, then frames, one after the other, then nothing. All numbers are little-endian.
//!
//! ```text
//! header  0 "TRAPLINE" | 8 u32 version (2; 1 has no kind 9) | 12 u32 byte order of the host that recorded: 0 little, 1 big
//! frame   0 u32 kind | 4 u32 number | 8 u32 bytes that follow | 12 u32 bytes unpacked | 16 u64 a | 24 u32 b | 28 u32 CRC-32 of these 28 bytes and of
//!         what follows | 32 what follows: as it is if both lengths are equal, else a zstd frame
//! ```
//!
//! | kind | number | a, b | unpacked |
//! |---|---|---|---|
//! | 1 metadata | 0 | | JSON: [`Metadata`]; again where a module is known that the last one does not have |
//! | 2 blocks | table | | entries of the block table: u64 word index, u64 words, the words |
//! | 3 process | process | | JSON: [`ProcessRecord`] |
//! | 4 stream | stream | | JSON: [`StreamRecord`] |
//! | 5 chunk | stream | instructions that retired in it; chunks lost before it | u64 number in the stream, u64 order, u64 nanoseconds since the recording began, u64 flags (bit 0: nothing of the chunk follows), then the words of the pipe's chunk |
//! | 6 ended | stream | | |
//! | 7 index | 0 | | for each chunk frame: u64 offset in the file, u64 stream (bit 32: there are only instructions in it, and none were lost before), u64 instructions of the stream before it, u64 nanoseconds |
//! | 8 end | 0 | offset of the index | |
//! | 9 chunk | as 5 | as 5 | u64 number, order, nanoseconds and flags as in 5, then the words' differences from what was expected (`predict.rs`) |
//!
//! Rules:
//! * Everything that a frame needs stands before it: a file that is cut off anywhere can be read up to its last whole frame.
//! * Chunks come in the order in which the receiver handed them out, so that what is played back is what was seen.
//! * Words are those of the recording host, and so is the order of bytes packed in them: hosts of the other order refuse the file.

mod cut;
mod index;
mod predict;
mod read;
mod write;

pub use cut::{Cut, Window, cut, dump};
pub use index::{Bounds, Index};
pub use read::{Damage, Frame, Frames, Recording, Summary as RecordingSummary, summary};
pub use write::{Recorded, Recorder, Tee};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"TRAPLINE";
/// Version of the format.
pub const VERSION: u32 = 2;
/// The oldest one that is read.
pub const OLDEST: u32 = 1;
/// Bytes of the file's header.
pub const HEADER: usize = 16;
/// Bytes of a frame's header.
pub const FRAME: usize = 32;
/// Bytes of a chunk before its words.
const CHUNK_HEADER: usize = 32;
/// No frame is longer unpacked.
pub const MOST: u32 = 1 << 28;

/// In the index, with the stream: the chunk has only instructions, and none were lost before it.
const PLAIN: u64 = 1 << 32;

/// Kinds of frames.
#[allow(missing_docs)]
pub mod kind {
    pub const METADATA: u32 = 1;
    pub const BLOCKS: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const STREAM: u32 = 4;
    pub const CHUNK: u32 = 5;
    pub const ENDED: u32 = 6;
    pub const INDEX: u32 = 7;
    pub const END: u32 = 8;
    pub const PREDICTED: u32 = 9;
    /// The last one.
    pub const LAST: u32 = PREDICTED;

    /// What a kind is called.
    pub fn name(kind: u32) -> &'static str {
        match kind {
            METADATA => "metadata",
            BLOCKS => "blocks",
            PROCESS => "process",
            STREAM => "stream",
            CHUNK | PREDICTED => "chunk",
            ENDED => "ended",
            INDEX => "index",
            END => "end",
            _ => "unknown",
        }
    }
}

/// What a recording says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// What recorded: `trapline VERSION`.
    pub recorder: String,
    /// The guest's command line.
    pub command: Vec<String>,
    /// QEMU's target.
    pub target: String,
    /// The analyzer in QEMU.
    pub analyzer: String,
    /// When it began: nanoseconds since 1970.
    pub wall_ns: u64,
    /// Build ids of what was mapped to be run, in hexadecimal, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, String>,
    /// What else there is to know.
    #[serde(default)]
    pub more: BTreeMap<String, String>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Its pid.
    pub pid: u32,
    /// Its parent's pid, or 0.
    pub parent: u32,
    /// The program's path, its bytes.
    pub program: Vec<u8>,
}

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// Number of its process.
    pub process: u32,
    /// Number of its table.
    pub table: u32,
    /// The thread.
    pub tid: u32,
    /// The vCPU.
    pub vcpu: u32,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    kind: u32,
    number: u32,
    packed: u32,
    unpacked: u32,
    a: u64,
    b: u32,
}

impl Head {
    fn bytes(&self, body: &[u8]) -> [u8; FRAME] {
        let mut h = [0; FRAME];
        h[0..4].copy_from_slice(&self.kind.to_le_bytes());
        h[4..8].copy_from_slice(&self.number.to_le_bytes());
        h[8..12].copy_from_slice(&self.packed.to_le_bytes());
        h[12..16].copy_from_slice(&self.unpacked.to_le_bytes());
        h[16..24].copy_from_slice(&self.a.to_le_bytes());
        h[24..28].copy_from_slice(&self.b.to_le_bytes());
        let sum = checksum(&h[..28], body);
        h[28..32].copy_from_slice(&sum.to_le_bytes());
        h
    }

    fn parse(h: &[u8; FRAME]) -> (Head, u32) {
        let u = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        let a = u64::from(u(16)) | u64::from(u(20)) << 32;
        (Head { kind: u(0), number: u(4), packed: u(8), unpacked: u(12), a, b: u(24) }, u(28))
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(head);
    sum.update(body);
    sum.finalize()
}

/// The level of compression: measured in the book's chapter on recordings.
const LEVEL: i32 = 3;

/// Packs frames. It keeps zstd's memory, which takes longer to make than to use.
#[derive(Default)]
struct Packing {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
}

impl Packing {
    /// A frame of these bytes, packed if that makes it shorter.
    fn frame(&mut self, mut head: Head, unpacked: &[u8]) -> Vec<u8> {
        head.unpacked = unpacked.len() as u32;
        let body = self.compress(unpacked).unwrap_or(unpacked);
        head.packed = body.len() as u32;
        let mut bytes = head.bytes(body).to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    fn compress(&mut self, unpacked: &[u8]) -> Option<&[u8]> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(unpacked.len()));
        let n = self.zstd.as_mut()?.compress_to_buffer(unpacked, &mut self.packed).ok()?;
        self.packed.get(..n).filter(|p| p.len() < unpacked.len())
    }
}

/// The file's header on this host.
fn header() -> [u8; HEADER] {
    let mut h = [0; HEADER];
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&VERSION.to_le_bytes());
    h[12..].copy_from_slice(&u32::from(cfg!(target_endian = "big")).to_le_bytes());
    h
}

fn words_to_bytes(words: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    words.for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

fn bytes_to_words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
}
