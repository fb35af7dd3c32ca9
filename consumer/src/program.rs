//! The main function of a consumer that is a program of its own.

use crate::{Analysis, Error, Format, Options, Receiver};
use clap::Parser;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Reads the events of a guest and says what it found out, on standard output.
#[derive(Parser)]
struct Arguments {
    /// The socket that QEMU serves (-trapline socket=…); waited for if it is not there yet
    socket: PathBuf,
    /// How results look
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Rather lose events than hold the guest; losses are counted
    #[arg(long)]
    lossy: bool,
}

/// How long a socket that is not there is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the analysis that `make` makes as `PROGRAM SOCKET [--format text|json] [--lossy]`; results go to standard output. This is how `trapline run`
/// starts the consuming half of an analyzer outside of this project.
pub fn program(make: impl FnOnce(Format) -> Box<dyn Analysis>) -> ExitCode {
    let arguments = Arguments::parse();
    let mut analysis = make(arguments.format);
    match consume(&arguments, &mut *analysis) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the results has seen enough.
        Err(Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e} (socket {})", analysis.name(), arguments.socket.display());
            ExitCode::FAILURE
        }
    }
}

fn consume(arguments: &Arguments, analysis: &mut dyn Analysis) -> Result<(), Error> {
    let start = Instant::now();
    let mut receiver = loop {
        match Receiver::connect(&arguments.socket, analysis.name(), arguments.lossy) {
            Ok(receiver) => break receiver,
            Err(pipe::Error::Io { source, .. })
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
                    && start.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(e.into()),
        }
    };
    let mut out = BufWriter::new(io::stdout());
    analysis.consume(&mut receiver, &Options::default(), &mut out)?;
    // The guest need not wait while we write.
    drop(receiver);
    analysis.report(&mut out)?;
    Ok(out.flush()?)
}
