//! Drives a consumer: parts of streams to worker threads, their outcomes back in order.
//!
//! Rules:
//! * `map` may run for any part at any time; `reduce` runs on the calling thread, for the parts of a stream in their order.
//! * A part is given back to its writer once it is mapped and its turn has come; at most [`IN_FLIGHT`] parts per worker
//!   are out at a time, so that a slow consumer holds the guest and memory stays bounded.
//! * With one worker everything happens on the calling thread, without hand-over.
//! * The calling thread waits in one place, at the source; workers end that wait through the source's ringer.

use crate::{Chunk, Error, Stream};
use crossbeam_channel::{Receiver as Incoming, Sender, TryRecvError, bounded, unbounded};
use pipe::receiver::{Part, Polled, Receiver, StreamInfo};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

/// Parts that are out per worker: one in work, one waiting, one whose turn has not come.
const IN_FLIGHT: usize = 3;

/// What is done with streams. Several parts are mapped at a time; what they yield is reduced in order.
pub trait Consumer: Sync {
    /// What a part of a stream yields.
    type Batch: Send;
    /// What the batches add up to.
    type State;

    /// Decodes a part. On worker threads, in any order.
    fn map(&self, chunk: &Chunk<'_>) -> Result<Self::Batch, Error>;

    /// Takes a batch. On the thread that runs the consumer, in the order of execution for each stream.
    fn reduce(&self, state: &mut Self::State, stream: &Stream, batch: Self::Batch) -> Result<(), Error>;

    /// `chunks` chunks of the stream were overwritten before they could be read (lossy consumers only).
    fn lost(&self, state: &mut Self::State, stream: &Stream, chunks: u64) -> Result<(), Error> {
        let _ = (state, stream, chunks);
        Ok(())
    }

    /// Nothing of this stream follows.
    fn ended(&self, state: &mut Self::State, stream: &Stream) -> Result<(), Error> {
        let _ = (state, stream);
        Ok(())
    }
}

/// Where parts come from: a running guest, a recording.
pub trait Source {
    /// Looks once, without waiting.
    fn poll(&mut self) -> Result<Polled, Error>;
    /// Waits until something may have come since the last look, or the ringer was called.
    fn wait(&self);
    /// What ends waits, from any thread.
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync>;
}

impl<S: Source + ?Sized> Source for &mut S {
    fn poll(&mut self) -> Result<Polled, Error> {
        (**self).poll()
    }
    fn wait(&self) {
        (**self).wait();
    }
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        (**self).ringer()
    }
}

impl Source for Receiver {
    fn poll(&mut self) -> Result<Polled, Error> {
        Ok(Receiver::poll(self)?)
    }
    fn wait(&self) {
        Receiver::wait(self);
    }
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        let ringer = Receiver::ringer(self);
        Arc::new(move || ringer.ring())
    }
}

/// How a consumer is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that map; 1: the calling thread does it all.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: default_workers() }
    }
}

/// One core is the guest's; more than four workers outrun any guest thread.
pub fn default_workers() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get()).saturating_sub(1).clamp(1, 4)
}

/// What was consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Streams that ended.
    pub streams: u64,
    /// Parts of chunks.
    pub parts: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Chunks that were lost.
    pub lost: u64,
}

/// Runs `consumer` on everything that comes from `source`.
///
/// An error of the source or of the consumer ends the run: the source may be dropped, which lets the guest go on without us.
pub fn run<C: Consumer>(
    source: &mut dyn Source,
    consumer: &C,
    state: &mut C::State,
    options: &Options,
) -> Result<Summary, Error> {
    if options.workers <= 1 {
        return run_here(source, consumer, state);
    }
    let workers = options.workers;
    let (jobs, take) = bounded::<Job>(workers * IN_FLIGHT);
    let (give, done) = unbounded::<Done<C::Batch>>();
    thread::scope(|scope| {
        for i in 0..workers {
            let (take, give, ring) = (take.clone(), give.clone(), source.ringer());
            let started = thread::Builder::new().name(format!("trapline-map-{i}")).spawn_scoped(scope, move || {
                for job in take {
                    let batch = catch_unwind(AssertUnwindSafe(|| map(consumer, &job.part)));
                    if give.send(Done { stream: job.stream, serial: job.serial, part: job.part, batch }).is_err() {
                        return;
                    }
                    ring();
                }
            });
            if let (0, Err(e)) = (i, started) {
                return Err(Error::Consumer(format!("cannot start a thread: {e}")));
            }
        }
        drop((take, give));
        dispatch(source, consumer, state, workers * IN_FLIGHT, jobs, done)
    })
}

/// A part for a worker.
struct Job {
    stream: usize,
    serial: u64,
    part: Part,
}

/// A worker's outcome.
struct Done<B> {
    stream: usize,
    serial: u64,
    part: Part,
    batch: thread::Result<Result<Option<B>, Error>>,
}

/// Maps a part. `None`: it was overrun while it was read.
fn map<C: Consumer>(consumer: &C, part: &Part) -> Result<Option<C::Batch>, Error> {
    let batch = consumer.map(&Chunk::new(part));
    if part.was_overrun() {
        return Ok(None);
    }
    match batch {
        Ok(batch) => Ok(Some(batch)),
        Err(Error::Pipe(e)) => Err(part.locate(e).into()),
        Err(e) => Err(e),
    }
}

/// Reduces a part's batch, and gives the part back.
fn reduce<C: Consumer>(
    consumer: &C,
    state: &mut C::State,
    summary: &mut Summary,
    part: Part,
    batch: Option<C::Batch>,
) -> Result<(), Error> {
    let stream = part.stream.clone();
    let mut lost = part.lost;
    if batch.is_none() {
        part.count_lost(1);
        lost += 1;
    } else {
        summary.parts += 1;
        summary.bytes += part.words().len() as u64 * 8;
    }
    part.release();
    if lost > 0 {
        summary.lost += lost;
        consumer.lost(state, &stream, lost)?;
    }
    match batch {
        Some(batch) => consumer.reduce(state, &stream, batch),
        None => Ok(()),
    }
}

fn run_here<C: Consumer>(source: &mut dyn Source, consumer: &C, state: &mut C::State) -> Result<Summary, Error> {
    let mut summary = Summary::default();
    loop {
        match source.poll()? {
            Polled::Part(part) => {
                let batch = map(consumer, &part)?;
                reduce(consumer, state, &mut summary, part, batch)?;
            }
            Polled::Ended(stream) => {
                summary.streams += 1;
                consumer.ended(state, &stream)?;
            }
            Polled::Nothing => source.wait(),
            Polled::End => return Ok(summary),
        }
    }
}

/// What is out of one stream.
struct Lane<B> {
    /// Serial number of the first element of `waiting`.
    first: u64,
    /// Outcomes by serial number; `None` while they are out.
    waiting: VecDeque<Option<(Part, Option<B>)>>,
    ended: Option<Arc<StreamInfo>>,
}

impl<B> Default for Lane<B> {
    fn default() -> Self {
        Lane { first: 0, waiting: VecDeque::new(), ended: None }
    }
}

fn dispatch<C: Consumer>(
    source: &mut dyn Source,
    consumer: &C,
    state: &mut C::State,
    most: usize,
    jobs: Sender<Job>,
    done: Incoming<Done<C::Batch>>,
) -> Result<Summary, Error> {
    let mut summary = Summary::default();
    let mut lanes: Vec<Lane<C::Batch>> = Vec::new();
    let mut out = 0usize;
    let mut over = false;
    let gone = || Error::Consumer("all worker threads are gone".into());
    loop {
        loop {
            // With all parts out, or nothing more to come, there is nothing to poll for: wait for a worker.
            let outcome = match out >= most || (over && out > 0) {
                true => done.recv().map_err(|_| gone())?,
                false => match done.try_recv() {
                    Ok(outcome) => outcome,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err(gone()),
                },
            };
            out -= 1;
            let batch = outcome.batch.unwrap_or_else(|panic| resume_unwind(panic))?;
            let lane = &mut lanes[outcome.stream];
            let place = (outcome.serial - lane.first) as usize;
            lane.waiting[place] = Some((outcome.part, batch));
            while let Some(Some((part, batch))) = lane.waiting.front_mut().map(Option::take) {
                lane.waiting.pop_front();
                lane.first += 1;
                reduce(consumer, state, &mut summary, part, batch)?;
            }
            finish_lane(consumer, state, &mut summary, lane)?;
        }
        if over {
            if out == 0 {
                return Ok(summary);
            }
            continue;
        }
        match source.poll()? {
            Polled::Part(part) => {
                let stream = part.stream.number;
                if lanes.len() <= stream {
                    lanes.resize_with(stream + 1, Lane::default);
                }
                let lane = &mut lanes[stream];
                let serial = lane.first + lane.waiting.len() as u64;
                lane.waiting.push_back(None);
                out += 1;
                jobs.send(Job { stream, serial, part }).map_err(|_| gone())?;
            }
            Polled::Ended(info) => {
                if lanes.len() <= info.number {
                    lanes.resize_with(info.number + 1, Lane::default);
                }
                let lane = &mut lanes[info.number];
                lane.ended = Some(info);
                finish_lane(consumer, state, &mut summary, lane)?;
            }
            Polled::Nothing => source.wait(),
            Polled::End => over = true,
        }
    }
}

fn finish_lane<C: Consumer>(
    consumer: &C,
    state: &mut C::State,
    summary: &mut Summary,
    lane: &mut Lane<C::Batch>,
) -> Result<(), Error> {
    if lane.waiting.is_empty()
        && let Some(stream) = lane.ended.take()
    {
        summary.streams += 1;
        consumer.ended(state, &stream)?;
    }
    Ok(())
}
