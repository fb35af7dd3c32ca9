//! Prints as `trace` does.

use consumer::{Analysis, Format};

/// Settings: none.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        analyzer_trace::consume::Args::default().named("registers", format)
    }
}
