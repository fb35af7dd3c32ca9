//! `trapline bench`: what tracing costs, as ratios to unpatched QEMU.
//!
//! Each round runs every configuration once, one after the other, so that what else the machine does weighs on all alike; a ratio is taken within a round, and the median
//! over the rounds is what counts.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::cache::Cache;
use crate::error::At;
use crate::home::Home;
use crate::prepare::{self, Wish};
use crate::progress::Step;
use crate::recording::{self, Making};
use crate::run::{Format, Prepared};
use crate::target::Target;
use crate::{Error, Result, analyzer, cli, exec, session, source};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline bench
  trapline bench --rounds 9 --workload interpreter,memory
  trapline bench --target aarch64 --format json -o bench.json
  trapline bench --configuration fetch --configuration fetch+mem

Builds what it needs: unpatched QEMU, those with the analyzers empty, trace and benches/call, and a plugin. A quiet machine with two
cores or more gives figures that can be trusted; the spread is printed with them.")]
pub struct Bench {
    /// The guest's ISA, as QEMU names it [default: this machine's own]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Rounds of all configurations
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Only these workloads [default: all of benches/guests]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Vec<String>,
    /// Only this configuration, beside the unpatched one; can be repeated [default: all, of which the recorded ones take the longest]
    #[arg(long, value_name = "NAME")]
    configuration: Vec<String>,
    /// How results look
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Where results go [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Not in the mean: nothing but what a block costs.
const APART: &str = "nops";

/// How many times a workload does its work: so that it takes a second or so, of which a start is a small part.
fn times(workload: &str) -> &'static str {
    match workload {
        "nops" => "10",
        "threads" => "6",
        "compress" | "memory" => "4",
        "interpreter" => "2",
        _ => "1",
    }
}

/// A way to run a guest.
struct Configuration {
    name: &'static str,
    /// The analyzer linked in, by name or folder in the checkout; `None`: unpatched.
    analyzer: Option<&'static str>,
    /// Options of `-trapline` beside the socket; `None`: without it.
    settings: Option<&'static [&'static str]>,
    /// What else is done meanwhile.
    along: Along,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Nothing,
    /// The consumer `count` reads everything.
    Count,
    /// Everything is recorded in a file.
    Record,
    /// QEMU's own plugin interface does it: `benches/plugin.c`.
    Plugin,
}

const fn configuration(
    name: &'static str,
    analyzer: Option<&'static str>,
    settings: Option<&'static [&'static str]>,
    along: Along,
) -> Configuration {
    Configuration { name, analyzer, settings, along }
}

const FETCH: &[&str] = &["opt.mem=off"];
const VALUES: &[&str] = &["opt.values=on"];
const TRACE: Option<&str> = Some("trace");

const CONFIGURATIONS: [Configuration; 11] = [
    configuration("unpatched", None, None, Along::Nothing),
    configuration("nothing filled in", Some("empty"), Some(&[]), Along::Nothing),
    configuration("stopped", TRACE, Some(&["start=off"]), Along::Nothing),
    configuration("fetch", TRACE, Some(FETCH), Along::Count),
    configuration("fetch+mem", TRACE, Some(&[]), Along::Count),
    configuration("fetch+mem+values", TRACE, Some(VALUES), Along::Count),
    configuration("fetch, recorded", TRACE, Some(FETCH), Along::Record),
    configuration("fetch+mem, recorded", TRACE, Some(&[]), Along::Record),
    configuration("fetch+mem+values, recorded", TRACE, Some(VALUES), Along::Record),
    configuration("plugin, fetch+mem", None, None, Along::Plugin),
    configuration("call per instruction", Some("benches/call"), Some(&[]), Along::Nothing),
];

/// Those asked for, and the one that they are compared with.
fn configurations(wanted: &[String]) -> Result<Vec<&'static Configuration>> {
    if let Some(unknown) = wanted.iter().find(|w| !CONFIGURATIONS.iter().any(|c| c.name == **w)) {
        let names: Vec<String> = CONFIGURATIONS.iter().map(|c| format!("'{}'", c.name)).collect();
        return Err(Error::Usage {
            what: format!("no configuration '{unknown}'"),
            hint: format!("these are: {}", names.join(" ")),
        });
    }
    let chosen = |c: &&Configuration| c.name == CONFIGURATIONS[0].name || wanted.iter().any(|w| w == c.name);
    Ok(CONFIGURATIONS.iter().filter(|c| wanted.is_empty() || chosen(c)).collect())
}

/// Seconds and ratios of one configuration on one workload.
#[derive(Serialize)]
struct Row {
    workload: String,
    configuration: &'static str,
    /// Median wall-clock seconds.
    seconds: f64,
    /// To unpatched QEMU in the same round: median, least, most.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

#[derive(Serialize)]
struct Report {
    target: &'static str,
    rounds: u32,
    cpu: String,
    kernel: String,
    cores: usize,
    qemu: String,
    trapline: &'static str,
    rows: Vec<Row>,
    /// Geometric mean of the ratios over the workloads, `nops` apart.
    means: Vec<(&'static str, f64)>,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 { 0.0 } else { (sorted[n / 2] + sorted[(n - 1) / 2]) / 2.0 }
}

/// The guests' sources, by name.
fn workloads(home: &Home, wanted: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let folder = home.root().join("benches/guests");
    let mut all: Vec<(String, PathBuf)> = std::fs::read_dir(&folder)
        .at("read", &folder)?
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "c"))
        .filter_map(|p| Some((p.file_stem()?.to_str()?.to_string(), p)))
        .collect();
    all.sort();
    if let Some(unknown) = wanted.iter().find(|w| !all.iter().any(|(name, _)| name == *w)) {
        let names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
        return Err(Error::Usage {
            what: format!("no workload '{unknown}'"),
            hint: format!("these are: {}", names.join(" ")),
        });
    }
    all.retain(|(name, _)| wanted.is_empty() || wanted.contains(name));
    Ok(all)
}

fn compile(target: &Target, source: &Path, to: &Path) -> Result<()> {
    let host = Target::host().is_some_and(|h| h.name == target.name);
    let compilers: Vec<String> = if host {
        vec!["cc".into()]
    } else {
        target.cross.iter().map(|(triplet, _)| format!("{triplet}-gcc")).collect()
    };
    for compiler in &compilers {
        let mut command = Command::new(compiler);
        command.args(["-O2", "-ftree-vectorize", "-static", "-pthread", "-o"]).arg(to).arg(source);
        match command.output() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(exec::spawn_error(&command, e)),
            Ok(o) if o.status.success() => return Ok(()),
            Ok(o) => {
                let said = String::from_utf8_lossy(&o.stderr).into_owned();
                return Err(Error::Usage {
                    what: format!("{} does not compile: {said}", source.display()),
                    hint: "mend what the compiler says".into(),
                });
            }
        }
    }
    Err(Error::Usage {
        what: format!("no compiler for {} guests ({})", target.name, compilers.join(", ")),
        hint: format!(
            "Debian has it as gcc-{}",
            target.cross.first().map_or("…", |(triplet, _)| triplet).replace('_', "-")
        ),
    })
}

/// The plugin, against the header of the QEMU that is measured.
fn compile_plugin(cache: &Cache, home: &Home, to: &Path) -> Result<()> {
    let source = source::at_hand(cache, None)?.ok_or_else(|| Error::Bug("QEMU was built without a source".into()))?;
    let mut flags = Command::new("pkg-config");
    flags.args(["--cflags", "glib-2.0"]);
    let flags = flags.output().map_err(|e| exec::spawn_error(&flags, e))?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-I"]).arg(source.dir.join("include/qemu"));
    command.args(String::from_utf8_lossy(&flags.stdout).split_whitespace());
    command.arg(home.root().join("benches/plugin.c")).arg("-o").arg(to);
    let made = command.output().map_err(|e| exec::spawn_error(&command, e))?;
    match made.status.success() {
        true => Ok(()),
        false => {
            Err(Error::Bug(format!("benches/plugin.c does not compile: {}", String::from_utf8_lossy(&made.stderr))))
        }
    }
}

/// Runs a guest once; seconds until everything was consumed.
fn once(
    configuration: &Configuration,
    qemu: &Path,
    target: &Target,
    guest: &Path,
    times: &str,
    plugin: &Path,
    matches: &clap::ArgMatches,
) -> Result<f64> {
    let prepared = Prepared {
        qemu: qemu.to_path_buf(),
        target: target.name.into(),
        guest: guest.to_path_buf(),
        args: vec![times.into()],
        argv0: None,
        prefix: None,
        system: None,
    };
    let folder = session::Folder::new()?;
    let socket = folder.socket();
    let settings: Vec<String> = configuration.settings.map_or_else(Vec::new, |more| {
        let mut all = vec![format!("socket={}", socket.display().to_string().replace(',', ",,"))];
        all.extend(matches!(configuration.along, Along::Count | Along::Record).then(|| "wait=1".to_string()));
        all.extend(more.iter().map(|s| s.to_string()));
        all
    });
    let mut command = prepared.command(&settings);
    if configuration.along == Along::Plugin {
        command.env("QEMU_PLUGIN", plugin);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let file = guest.with_extension("trapline");
    let mut making = match configuration.along {
        Along::Record => Some(Making::begin(&file, &prepared, configuration.analyzer.unwrap_or_default())?),
        _ => None,
    };
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| exec::spawn_error(&command, e))?;
    let alive = AtomicBool::new(true);
    let (status, outcome) = std::thread::scope(|scope| {
        let (socket, alive_here) = (&socket, &alive);
        let consuming = match configuration.along {
            Along::Count => Some(scope.spawn(move || -> Result<session::Outcome> {
                let mut analysis = session::analysis("count", matches, Format::Json)?;
                Ok(session::consume(
                    &mut *analysis,
                    socket,
                    session::Reading::default(),
                    &mut io::sink(),
                    alive_here,
                    None,
                ))
            })),
            Along::Record => {
                let recorder = making.as_mut().and_then(Making::recorder);
                Some(scope.spawn(move || {
                    Ok(session::consume(
                        &mut recording::Drain,
                        socket,
                        session::Reading::default(),
                        &mut io::sink(),
                        alive_here,
                        recorder,
                    ))
                }))
            }
            _ => None,
        };
        let status = child.wait();
        // Release; pairs with the Acquire in `session::consume`.
        alive.store(false, Ordering::Release);
        (status, consuming.map(|c| c.join()))
    });
    // A recording takes as long as its file.
    making.map(Making::finish).transpose()?;
    let seconds = start.elapsed().as_secs_f64();
    let status = status.map_err(|e| exec::spawn_error(&command, e))?;
    if !status.success() {
        return Err(Error::Bug(format!("{} ended under '{}': {status}", guest.display(), configuration.name)));
    }
    match outcome {
        None | Some(Ok(Ok(session::Outcome::Done))) => Ok(seconds),
        Some(Ok(Err(e))) => Err(e),
        Some(Ok(Ok(_))) | Some(Err(_)) => Err(Error::Bug(format!("the consumer of '{}' failed", configuration.name))),
    }
}

fn first_line(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_once(':').map_or(line, |(_, v)| v).trim().to_string()
}

/// `trapline bench`.
pub fn run(args: Bench) -> Result<ExitCode> {
    let target = match &args.target {
        Some(name) => Target::named(name).ok_or_else(|| Error::UnknownTarget { name: name.clone() })?,
        None => Target::host().ok_or_else(|| Error::UnknownTarget { name: std::env::consts::ARCH.into() })?,
    };
    let (home, cache) = (Home::find()?, Cache::open()?);
    let workloads = workloads(&home, &args.workload)?;
    let configurations = configurations(&args.configuration)?;
    let guests = tempfile::tempdir().at("make a folder in", std::env::temp_dir())?;
    let mut programs = Vec::new();
    for (name, source) in &workloads {
        let program = guests.path().join(name);
        compile(target, source, &program)?;
        programs.push((name.clone(), program));
    }
    let mut qemus = Vec::new();
    for c in &configurations {
        let folder = |name: &str| match name.contains('/') {
            true => home.root().join(name).to_string_lossy().into_owned(),
            false => name.to_string(),
        };
        let analyzer = c.analyzer.map(|name| analyzer::find(&home, &folder(name))).transpose()?;
        let wish = Wish { analyzer, targets: vec![target], qemu_src: None };
        qemus.push(prepare::qemu(&cache, &home, &wish, target)?);
    }
    let matches = session::augment(clap::Command::new("bench")).try_get_matches_from(["bench"]);
    let matches = matches.map_err(|e| Error::Bug(format!("consumers without arguments: {e}")))?;

    let plugin = guests.path().join("plugin.so");
    if configurations.iter().any(|c| c.along == Along::Plugin) {
        compile_plugin(&cache, &home, &plugin)?;
    }

    let mut rows = Vec::new();
    let what = format!("Running {} workloads in {} rounds", programs.len(), args.rounds);
    let mut step = Step::new(&what);
    let total = programs.len() as u64 * u64::from(args.rounds + 1);
    for (w, (name, program)) in programs.iter().enumerate() {
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); configurations.len()];
        // The first round warms up, and does not count.
        for round in 0..=args.rounds {
            step.set(w as u64 * u64::from(args.rounds + 1) + u64::from(round), total);
            for (i, c) in configurations.iter().enumerate() {
                let took = once(c, &qemus[i], target, program, times(name), &plugin, &matches)?;
                if round > 0 {
                    seconds[i].push(took);
                }
            }
        }
        for (i, c) in configurations.iter().enumerate() {
            let ratios: Vec<f64> = seconds[i].iter().zip(&seconds[0]).map(|(a, b)| a / b).collect();
            rows.push(Row {
                workload: name.clone(),
                configuration: c.name,
                seconds: median(&seconds[i]),
                ratio: median(&ratios),
                ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratio_max: ratios.iter().copied().fold(0.0, f64::max),
            });
        }
    }
    step.done();
    let means = configurations
        .iter()
        .map(|c| {
            let of: Vec<f64> = rows
                .iter()
                .filter(|r| r.configuration == c.name && r.workload != APART)
                .map(|r| r.ratio.ln())
                .collect();
            (c.name, if of.is_empty() { 1.0 } else { (of.iter().sum::<f64>() / of.len() as f64).exp() })
        })
        .collect();
    let version =
        Command::new(&qemus[0]).arg("--version").output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let report = Report {
        target: target.name,
        rounds: args.rounds,
        cpu: first_line("/proc/cpuinfo", "model name"),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string(),
        cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
        qemu: version.unwrap_or_default().lines().next().unwrap_or_default().to_string(),
        trapline: env!("CARGO_PKG_VERSION"),
        rows,
        means,
    };
    let text = match args.format {
        Format::Json => {
            let mut json = serde_json::to_string(&report).map_err(|e| Error::Bug(e.to_string()))?;
            json.push('\n');
            json
        }
        Format::Text => text(&report),
    };
    match &args.output {
        None => cli::print(text.as_bytes()),
        Some(path) => std::fs::write(path, text).at("write", path).map(|()| ExitCode::SUCCESS),
    }
}

fn text(r: &Report) -> String {
    let mut out = format!(
        "{} guest, {} rounds; {} ({} cores), Linux {}; {}; trapline {}\n",
        r.target, r.rounds, r.cpu, r.cores, r.kernel, r.qemu, r.trapline
    );
    out.push_str("wall-clock time to unpatched QEMU's in the same round: median (least to most); the consumer counts everything\n\n");
    for row in &r.rows {
        out.push_str(&format!(
            "{:12} {:26} {:>8.3} s  {:>6.2}  ({:.2} to {:.2})\n",
            row.workload, row.configuration, row.seconds, row.ratio, row.ratio_min, row.ratio_max
        ));
    }
    out.push_str(&format!("\ngeometric mean over the workloads, {APART} apart:\n"));
    for (name, mean) in &r.means {
        out.push_str(&format!("{:12} {name:26} {:>10}  {mean:>6.2}\n", "", ""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn the_first_configuration_is_what_the_others_are_compared_with() {
        assert!(CONFIGURATIONS[0].analyzer.is_none() && CONFIGURATIONS[0].settings.is_none());
        // An unpatched QEMU again only where a plugin does the work.
        assert!(CONFIGURATIONS.iter().skip(1).all(|c| c.analyzer.is_some() != (c.along == Along::Plugin)));
    }
}
