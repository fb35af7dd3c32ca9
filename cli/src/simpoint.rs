//! `trapline simpoint`: from basic-block vectors to the windows that stand for the program.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use consumer::recording::{self, Bounds, Window};
use feeds::points::{self, Points, Settings};

use crate::error::At;
use crate::recording::unusable;
use crate::run::Format;
use crate::{Error, Result, cli};

/// What `trapline simpoint` takes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline run --feed bbv --interval 10000000 -o prog.bb.gz -- ./prog
  trapline simpoint prog.bb.gz
  trapline simpoint prog.bb.gz --cut prog.trapline -o windows/
  trapline simpoint prog.bb.gz --save prog       writes prog.simpoints and prog.weights

A point is an interval that stands for all that are like it; its weight is their share of the instructions.")]
pub struct Simpoint {
    /// Basic-block vectors, as --feed bbv and other tools write them, packed or not (.gz .xz .bz2 .zst .lz4)
    #[arg(value_name = "BBV-FILE")]
    file: PathBuf,
    /// Points at most
    #[arg(long, value_name = "K", default_value_t = 30, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    max_k: usize,
    /// Dimensions that vectors are projected onto
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    dimensions: usize,
    /// Of the projection and of k-means: the same seed gives the same points
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How the points look
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write PREFIX.simpoints and PREFIX.weights, as SimPoint does
    #[arg(long, value_name = "PREFIX")]
    save: Option<PathBuf>,
    /// Cut the points' windows out of this recording
    #[arg(long, value_name = "RECORDING", requires = "output")]
    cut: Option<PathBuf>,
    /// The folder for what is cut
    #[arg(short, long, value_name = "FOLDER", requires = "cut")]
    output: Option<PathBuf>,
}

/// `trapline simpoint`.
pub fn simpoint(args: &Simpoint) -> Result<ExitCode> {
    let refused = |e: points::Error| Error::Usage {
        what: e.to_string(),
        hint: "trapline run --feed bbv -o FILE -- PROGRAM writes basic-block vectors".into(),
    };
    let settings = Settings { max_k: args.max_k, dimensions: args.dimensions, seed: args.seed, ..Settings::default() };
    let points = points::choose(&points::read(&args.file).map_err(refused)?, &settings).map_err(refused)?;
    if let Some(prefix) = &args.save {
        save(prefix, &points)?;
    }
    let windows = match (&args.cut, &args.output) {
        (Some(recording), Some(folder)) => cut(recording, folder, &points)?,
        _ => Vec::new(),
    };
    let text = match args.format {
        Format::Text => text(&points, &windows),
        Format::Json => json(&points, &windows),
    };
    cli::print(text.as_bytes())
}

fn save(prefix: &Path, points: &Points) -> Result<()> {
    let file = |suffix: &str, write: &dyn Fn(&mut dyn Write) -> std::io::Result<()>| {
        let mut path = prefix.as_os_str().to_os_string();
        path.push(suffix);
        let path = PathBuf::from(path);
        let mut out = BufWriter::new(File::create(&path).at("write", &path)?);
        write(&mut out).and_then(|()| out.flush()).at("write", &path)
    };
    file(".simpoints", &|out| points.write_simpoints(out))?;
    file(".weights", &|out| points.write_weights(out))
}

/// Cuts each point's window; the new files.
fn cut(from: &Path, folder: &Path, points: &Points) -> Result<Vec<PathBuf>> {
    if from.as_os_str() == "-" {
        return Err(Error::Usage {
            what: "a recording is read once for each point, which standard input cannot be".into(),
            hint: "--cut FILE".into(),
        });
    }
    fs::create_dir_all(folder).at("make the folder", folder)?;
    let mut made = Vec::new();
    for (cluster, p) in points.points.iter().enumerate() {
        let path = folder.join(format!("point-{cluster}.trapline"));
        let bounds = Bounds::Insns(p.start..p.start.saturating_add(p.insns));
        let window = Window::of_file(File::open(from).at("read", from)?, from, &bounds).map_err(|e| unusable(&e))?;
        let out = BufWriter::new(File::create(&path).at("write", &path)?);
        let cut = recording::cut(window, Box::new(out)).map_err(|e| unusable(&e))?;
        if cut.longest < p.start + p.insns {
            return Err(Error::Usage {
                what: format!(
                    "{}: no thread has the {} instructions from {} on: it has {}",
                    from.display(),
                    p.insns,
                    p.start,
                    cut.longest
                ),
                hint: "the vectors must be those of this recording: trapline replay RECORDING --feed bbv -o FILE"
                    .into(),
            });
        }
        made.push(path);
    }
    Ok(made)
}

fn text(points: &Points, windows: &[PathBuf]) -> String {
    let mut out = format!(
        "{} points for {} intervals, {} instructions\n",
        points.points.len(),
        points.labels.len(),
        points.insns
    );
    out += &format!(
        "{:>7} {:>9} {:>9} {:>18} {:>14}  weight\n",
        "cluster", "intervals", "interval", "start instruction", "instructions"
    );
    for (c, p) in points.points.iter().enumerate() {
        out +=
            &format!("{c:>7} {:>9} {:>9} {:>18} {:>14}  {:.6}\n", p.intervals, p.interval, p.start, p.insns, p.weight);
    }
    for path in windows {
        out += &format!("{}\n", path.display());
    }
    if windows.is_empty() {
        for p in &points.points {
            out += &format!("trapline run --skip {} --count {} --record FILE -- PROGRAM\n", p.start, p.insns);
        }
    }
    out
}

fn json(points: &Points, windows: &[PathBuf]) -> String {
    let each = points.points.iter().enumerate().map(|(cluster, p)| {
        serde_json::json!({
            "cluster": cluster,
            "intervals": p.intervals,
            "interval": p.interval,
            "start": p.start,
            "insns": p.insns,
            "weight": p.weight,
            "file": windows.get(cluster).map(|w| w.to_string_lossy()),
        })
    });
    let json = serde_json::json!({
        "points": each.collect::<Vec<_>>(),
        "labels": points.labels,
        "scores": points.scores,
        "insns": points.insns,
    });
    format!("{json}\n")
}
