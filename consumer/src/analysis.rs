//! What the command needs of the consuming half of an analyzer that ships.

use crate::{By, Error, Options, Source, Summary};
use std::fmt;
use std::io::Write;
use std::str::FromStr;

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl FromStr for Format {
    type Err = String;
    fn from_str(s: &str) -> Result<Format, String> {
        match s {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err(format!("no format '{s}': text or json")),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Text => "text",
            Format::Json => "json",
        })
    }
}

/// The consuming half of an analyzer, with its settings.
pub trait Analysis: Send {
    /// The analyzer's name.
    fn name(&self) -> &'static str;

    /// Asks for results broken down, too. `false`: it cannot.
    fn by(&mut self, by: By) -> bool {
        let _ = by;
        false
    }

    /// Options for the half inside QEMU.
    fn qemu_options(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Consumes everything from `source`. What is told event by event goes to `out` at once.
    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        out: &mut (dyn Write + Send),
    ) -> Result<Summary, Error>;

    /// Writes the result, once the guest has ended.
    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error>;

    /// Whether what was consumed is as it should be, for analyses that judge. If not, the command ends with 124.
    fn verdict(&self) -> bool {
        true
    }
}
