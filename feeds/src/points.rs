//! Simulation points: basic-block vectors clustered as SimPoint 3 does it.
//!
//! Each interval's vector is divided by its sum and projected onto a few random dimensions; k-means finds clusters; the Bayesian information criterion chooses how
//! many; the interval nearest to a cluster's centre stands for it, with the cluster's share of all instructions as its weight.
//!
//! Rules:
//! * The same file, seed and settings give the same points: nothing depends on time, threads or the order of a hash.
//! * What is read was written by others: whatever stands in it is a vector or an error with a line.

use linfa::DatasetBase;
use linfa::traits::{Fit, Predict};
use linfa_clustering::{KMeans, KMeansInit};
use linfa_nn::distance::L2Dist;
use ndarray::{Array2, ArrayView1};
use rand_xoshiro::Xoshiro256Plus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Why there are no points.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment's: the file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The user's: a line is no vector.
    #[error("{}:{line}: {what}; expected 'T:ID:COUNT :ID:COUNT …' with IDs from 1", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The user's: no line is a vector.
    #[error("{}: no line with a vector; expected lines 'T:ID:COUNT :ID:COUNT …'", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Ours or the library's: k-means gave up.
    #[error("k-means with {k} clusters: {what}")]
    KMeans {
        /// How many clusters.
        k: usize,
        /// The library's words.
        what: String,
    },
}

/// Settings; the defaults are SimPoint's.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Clusters at most.
    pub max_k: usize,
    /// Dimensions that vectors are projected onto.
    pub dimensions: usize,
    /// Of everything random.
    pub seed: u64,
    /// Runs of k-means from different centres for each number of clusters; the best counts.
    pub runs: usize,
    /// Iterations of a run at most.
    pub iterations: u64,
    /// The fewest clusters are taken whose score is above this part of the scores' range.
    pub threshold: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { max_k: 30, dimensions: 15, seed: 1, runs: 5, iterations: 100, threshold: 0.9 }
    }
}

/// An interval's vector: (id, count), and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// By id, from 1.
    pub counts: Vec<(u64, u64)>,
    /// Instructions of the interval.
    pub insns: u64,
}

/// An interval that stands for a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of the interval, from 0.
    pub interval: usize,
    /// Instructions before it.
    pub start: u64,
    /// Instructions in it.
    pub insns: u64,
    /// Part of all instructions that it stands for.
    pub weight: f64,
    /// Intervals that it stands for.
    pub intervals: usize,
}

/// Points, in the program's order; a point's cluster is its index.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// One for each cluster.
    pub points: Vec<Point>,
    /// By interval: its cluster.
    pub labels: Vec<usize>,
    /// By number of clusters, from 1: the criterion.
    pub scores: Vec<f64>,
    /// Instructions of all intervals.
    pub insns: u64,
}

/// A file to be read, unpacked as its suffix says.
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    let suffix = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    Ok(match suffix.as_str() {
        "gz" => Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))),
        "bz2" => Box::new(bzip2::read::MultiBzDecoder::new(BufReader::new(file))),
        "xz" => Box::new(liblzma::read::XzDecoder::new_multi_decoder(BufReader::new(file))),
        "zst" | "zstd" => Box::new(zstd::stream::read::Decoder::new(file)?),
        "lz4" => Box::new(lz4_flex::frame::FrameDecoder::new(BufReader::new(file))),
        _ => Box::new(file),
    })
}

/// Reads vectors from a file.
///
/// # Errors
/// If it cannot be read, or what stands in it is something else.
pub fn read(path: &Path) -> Result<Vec<Vector>, Error> {
    let failed = |source| Error::Read { path: path.to_path_buf(), source };
    let mut reader = BufReader::with_capacity(1 << 16, open(path).map_err(failed)?);
    let mut vectors = Vec::new();
    let mut insns = 0u64;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        let wrong = |what: String| Error::Line { path: path.to_path_buf(), line: number, what };
        let text = std::str::from_utf8(&line).map_err(|_| wrong("it is no text".into()))?.trim();
        // Other tools write comments.
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let vector = vector(text).map_err(wrong)?;
        insns = insns.checked_add(vector.insns).ok_or_else(|| wrong("the counts' sum is above 2^64".into()))?;
        vectors.push(vector);
    }
    if vectors.is_empty() { Err(Error::Empty { path: path.to_path_buf() }) } else { Ok(vectors) }
}

fn vector(text: &str) -> Result<Vector, String> {
    // The end of a damaged line would fill the screen.
    let shown = |text: &str| text.chars().take(40).collect::<String>();
    let rest = text.strip_prefix('T').ok_or_else(|| format!("'{}' does not begin with T", shown(text)))?;
    let mut counts = BTreeMap::<u64, u64>::new();
    let mut insns = 0u64;
    for field in rest.split_ascii_whitespace() {
        let pair = field.strip_prefix(':').and_then(|f| f.split_once(':'));
        let pair = pair.and_then(|(id, n)| Some((id.parse::<u64>().ok()?, n.parse::<u64>().ok()?)));
        let Some((id, n)) = pair.filter(|(id, _)| *id > 0) else {
            return Err(format!("'{}' is not :ID:COUNT", shown(field)));
        };
        insns = insns.checked_add(n).ok_or("the counts' sum is above 2^64")?;
        *counts.entry(id).or_default() += n;
    }
    if insns == 0 {
        return Err("an interval without instructions".into());
    }
    Ok(Vector { counts: counts.into_iter().collect(), insns })
}

/// From -1 to 1.
fn uniform(rng: &mut Xoshiro256Plus) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// A row for each vector. A block's random direction depends on its id and the seed only, so ids may be anything.
fn project(vectors: &[Vector], settings: &Settings) -> Array2<f64> {
    let mut directions: HashMap<u64, Vec<f64>> = HashMap::new();
    let mut rows = Array2::zeros((vectors.len(), settings.dimensions));
    for (vector, mut row) in vectors.iter().zip(rows.rows_mut()) {
        for (id, n) in &vector.counts {
            let direction = directions.entry(*id).or_insert_with(|| {
                // Consecutive seeds are spread by the generator's seeding; the factor keeps seed and id apart.
                let mut rng = Xoshiro256Plus::seed_from_u64(settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ id);
                (0..settings.dimensions).map(|_| uniform(&mut rng)).collect()
            });
            let part = *n as f64 / vector.insns as f64;
            row.iter_mut().zip(direction).for_each(|(r, d)| *r += part * *d);
        }
    }
    rows
}

fn distance(a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Intervals by cluster.
struct Clustering {
    labels: Vec<usize>,
    /// By interval: the square of the distance to its centre.
    distances: Vec<f64>,
    k: usize,
}

fn cluster(
    data: &DatasetBase<Array2<f64>, ndarray::Array1<()>>,
    k: usize,
    settings: &Settings,
) -> Result<Clustering, Error> {
    let rng = Xoshiro256Plus::seed_from_u64(settings.seed);
    let model = KMeans::params_with(k, rng, L2Dist)
        .init_method(KMeansInit::KMeansPlusPlus)
        .n_runs(settings.runs.max(1))
        .max_n_iterations(settings.iterations.max(1))
        .tolerance(1e-9)
        .fit(data)
        .map_err(|e| Error::KMeans { k, what: e.to_string() })?;
    let labels = model.predict(&data.records).to_vec();
    let centres = model.centroids();
    let distances = labels.iter().zip(data.records.rows()).map(|(l, row)| distance(row, centres.row(*l))).collect();
    Ok(Clustering { labels, distances, k })
}

/// The Bayesian information criterion of clusters that are spherical and equally wide (Pelleg and Moore, X-means, 2000): likelihood less what the parameters cost.
fn score(clustering: &Clustering, dimensions: usize, least_variance: f64) -> f64 {
    let (r, k, m) = (clustering.labels.len() as f64, clustering.k as f64, dimensions as f64);
    let distortion: f64 = clustering.distances.iter().sum();
    let variance = if r > k { distortion / (m * (r - k)) } else { 0.0 };
    let variance = variance.max(least_variance);
    let mut sizes = vec![0u64; clustering.k];
    clustering.labels.iter().for_each(|l| sizes[*l] += 1);
    let members: f64 = sizes.iter().filter(|n| **n > 0).map(|n| *n as f64).map(|n| n * (n / r).ln()).sum();
    let likelihood =
        members - r * m / 2.0 * (2.0 * std::f64::consts::PI * variance).ln() - distortion / (2.0 * variance);
    likelihood - k * (m + 1.0) / 2.0 * r.ln()
}

/// Clusters the vectors and chooses points.
///
/// # Errors
/// If the library cannot.
pub fn choose(vectors: &[Vector], settings: &Settings) -> Result<Points, Error> {
    let rows = project(vectors, settings);
    let different: HashSet<Vec<u64>> =
        rows.rows().into_iter().map(|r| r.iter().map(|x| x.to_bits()).collect()).collect();
    let most = settings.max_k.clamp(1, different.len().max(1));
    let data = DatasetBase::from(rows);
    let mut tried = Vec::new();
    for k in 1..=most {
        tried.push(cluster(&data, k, settings)?);
    }
    // A program that repeats itself exactly has clusters of no width at all, one for each of its different intervals, which the criterion would prefer to its
    // phases. What differs by less than a hundredth of the whole spread is the same.
    let spread: f64 = tried.first().map_or(0.0, |c| c.distances.iter().sum());
    let least = (spread / (vectors.len() * settings.dimensions).max(1) as f64 * 1e-4).max(f64::MIN_POSITIVE);
    let scores: Vec<f64> = tried.iter().map(|c| score(c, settings.dimensions, least)).collect();
    let (low, high) = scores.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), s| (l.min(*s), h.max(*s)));
    let bar = low + settings.threshold * (high - low);
    let chosen = scores.iter().position(|s| *s >= bar).unwrap_or(0);
    let chosen = tried.swap_remove(chosen);

    let insns: u64 = vectors.iter().map(|v| v.insns).sum();
    // By the library's label: (nearest interval, its distance, instructions, intervals).
    let mut clusters: Vec<Option<(usize, f64, u64, usize)>> = vec![None; chosen.k];
    for (i, (label, distance)) in chosen.labels.iter().zip(&chosen.distances).enumerate() {
        let c = clusters[*label].get_or_insert((i, *distance, 0, 0));
        if *distance < c.1 {
            (c.0, c.1) = (i, *distance);
        }
        c.2 += vectors[i].insns;
        c.3 += 1;
    }
    let mut starts = Vec::with_capacity(vectors.len());
    vectors.iter().fold(0, |sum, v| {
        starts.push(sum);
        sum + v.insns
    });
    let mut order: Vec<usize> = (0..chosen.k).filter(|c| clusters[*c].is_some()).collect();
    order.sort_by_key(|c| clusters[*c].map(|c| c.0));
    let points = order.iter().filter_map(|c| clusters[*c]).map(|(interval, _, of, intervals)| Point {
        interval,
        start: starts[interval],
        insns: vectors[interval].insns,
        weight: of as f64 / insns as f64,
        intervals,
    });
    let points = points.collect();
    let mut number = vec![0; chosen.k];
    order.iter().enumerate().for_each(|(n, c)| number[*c] = n);
    Ok(Points { points, labels: chosen.labels.iter().map(|l| number[*l]).collect(), scores, insns })
}

impl Points {
    /// As SimPoint's `-saveSimpoints` writes it: `interval cluster` a line.
    pub fn write_simpoints(&self, out: &mut dyn Write) -> io::Result<()> {
        self.points.iter().enumerate().try_for_each(|(c, p)| writeln!(out, "{} {c}", p.interval))
    }
    /// As SimPoint's `-saveSimpointWeights` writes it: `weight cluster` a line.
    pub fn write_weights(&self, out: &mut dyn Write) -> io::Result<()> {
        self.points.iter().enumerate().try_for_each(|(c, p)| writeln!(out, "{} {c}", p.weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("trapline-points-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Three phases in turns: 20 blocks each, 10 of which the next phase has, too, and noise of up to `width` in each block; with `period`, the noise comes again after
    /// so many turns. The last interval is short.
    fn phases(width: u64, period: u64) -> Vec<Vector> {
        let line = |i: u64, times: u64| {
            let mut rng = Xoshiro256Plus::seed_from_u64(i % period);
            let phase = [0, 0, 1, 2][i as usize % 4];
            let mut counts: Vec<(u64, u64)> =
                (0..20).map(|b| (1 + 10 * phase + b, times * (500 + rng.next_u64() % width))).collect();
            // All have the same length.
            let sum: u64 = counts.iter().map(|c| c.1).sum();
            counts.push((100, 30_000 * times - sum));
            Vector { counts, insns: 30_000 * times }
        };
        let mut all: Vec<Vector> = (0..40).map(|i| line(i, 2)).collect();
        all.push(line(42, 1));
        all
    }

    #[test]
    fn phases_are_found() {
        for (seed, width, period) in [(1, 1, 1000), (2, 10, 12), (3, 10, 20), (4, 100, 1000), (5, 300, 1000)] {
            let settings = Settings { seed, ..Settings::default() };
            let vectors = phases(width, period);
            let found = choose(&vectors, &settings).unwrap();
            assert_eq!(found, choose(&vectors, &settings).unwrap());
            assert_eq!(found.points.len(), 3, "{:?}", found.scores);
            for (i, label) in found.labels[..40].iter().enumerate() {
                assert_eq!(*label, found.labels[[0, 0, 2, 3][i % 4]], "{i}");
            }
            assert_eq!(found.labels[40], found.labels[2]);
            assert_eq!(found.insns, 2_430_000);
            // 20 intervals of 60,000; 10 and the short one, of half; 10. Points are in the program's order.
            let by = |interval: usize| found.points[found.labels[interval]];
            assert_eq!([by(0).intervals, by(2).intervals, by(3).intervals], [20, 11, 10]);
            for (interval, insns) in [(0, 1_200_000.0), (2, 630_000.0), (3, 600_000.0)] {
                assert!((by(interval).weight - insns / 2_430_000.0).abs() < 1e-12);
            }
            assert!(found.points.is_sorted_by_key(|p| p.interval));
            for (c, p) in found.points.iter().enumerate() {
                assert_eq!((found.labels[p.interval], p.start), (c, 60_000 * p.interval as u64));
            }
        }
    }

    #[test]
    fn few_intervals_and_equal_ones() {
        let one = [vector("T:7:10").unwrap()];
        let found = choose(&one, &Settings::default()).unwrap();
        assert_eq!(found.points, [Point { interval: 0, start: 0, insns: 10, weight: 1.0, intervals: 1 }]);
        let equal = vec![one[0].clone(); 50];
        let found = choose(&equal, &Settings::default()).unwrap();
        assert_eq!((found.points.len(), found.points[0].intervals), (1, 50));
        // Two kinds without any noise.
        let two: Vec<Vector> = (0..30).map(|i| vector(&format!("T:{}:5", 1 + i % 2)).unwrap()).collect();
        assert_eq!(choose(&two, &Settings::default()).unwrap().points.len(), 2);
        assert_eq!(choose(&two, &Settings { max_k: 1, ..Settings::default() }).unwrap().points.len(), 1);
    }

    #[test]
    fn simpoints_own_files() {
        let point = |interval, weight| Point { interval, start: 0, insns: 1, weight, intervals: 1 };
        let points = Points { points: vec![point(3, 0.25), point(9, 0.75)], labels: vec![], scores: vec![], insns: 4 };
        let (mut simpoints, mut weights) = (Vec::new(), Vec::new());
        points.write_simpoints(&mut simpoints).unwrap();
        points.write_weights(&mut weights).unwrap();
        assert_eq!((&simpoints[..], &weights[..]), (&b"3 0\n9 1\n"[..], &b"0.25 0\n0.75 1\n"[..]));
    }

    #[test]
    fn files_are_read_whatever_packs_them() {
        let text = b"# by another tool\n\nT:1:4\nT:1:2 :2:1 :3:1  \nT:4:1";
        let plain = file("plain.bb", text);
        let vectors = read(&plain).unwrap();
        assert_eq!(vectors.iter().map(|v| v.insns).collect::<Vec<_>>(), [4, 4, 1]);
        assert_eq!(vectors[1].counts, [(1, 2), (2, 1), (3, 1)]);
        let packed = [
            ("gz", {
                let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(text).unwrap();
                e.finish().unwrap()
            }),
            ("zst", zstd::encode_all(&text[..], 1).unwrap()),
        ];
        for (suffix, bytes) in packed {
            let path = file(&format!("packed.bb.{suffix}"), &bytes);
            assert_eq!(read(&path).unwrap(), vectors, "{suffix}");
            // Cut off.
            std::fs::write(&path, &bytes[..bytes.len() - 6]).unwrap();
            assert!(matches!(read(&path), Err(Error::Read { .. })), "{suffix}");
            std::fs::remove_file(path).unwrap();
        }
        std::fs::remove_file(plain).unwrap();
    }

    #[test]
    fn what_is_no_vector_is_named() {
        for (text, line, what) in [
            (&b"T:1:4\nX:1:4\n"[..], 2, "'X:1:4' does not begin with T"),
            (b"T:1:4\n# x\nT:1:4 2:3\n", 3, "'2:3' is not :ID:COUNT"),
            (b"T:0:4\n", 1, "':0:4' is not :ID:COUNT"),
            (b"T:1:-4\n", 1, "':1:-4' is not"),
            (b"T:1\n", 1, "':1' is not"),
            (b"T\n", 1, "without instructions"),
            (b"T:1:0\n", 1, "without instructions"),
            (b"T:1:18446744073709551615 :2:1\n", 1, "above 2^64"),
            (b"T:1:18446744073709551615\nT:2:1\n", 2, "above 2^64"),
            (b"T:1:\xff\n", 1, "no text"),
        ] {
            let path = file("bad.bb", text);
            let e = read(&path).unwrap_err();
            let said = e.to_string();
            assert!(matches!(e, Error::Line { line: l, .. } if l == line), "{said}");
            assert!(
                said.contains(&format!("bad.bb:{line}: ")) && said.contains(what) && said.contains("expected"),
                "{said}"
            );
            std::fs::remove_file(path).unwrap();
        }
        let path = file("empty.bb", b"# nothing\n");
        assert!(matches!(read(&path), Err(Error::Empty { .. })));
        std::fs::remove_file(path).unwrap();
    }
}
