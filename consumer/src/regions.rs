//! What results are broken down by: regions of interest, as the guest marks them through the backdoor, or the processes that its kernel says
//! it runs (`guest-lib/module`).
//!
//! Rules:
//! * What happens belongs to the innermost region that is open. An end closes the innermost region of its name (of its number, if it has no
//!   name), and those that began within it; one without a beginning is nothing.
//! * A process runs from the event `switch` that names it, as the kernel has decided, to the next one. Its name is the thread name before.

use crate::{Event, GuestEvent};
use std::collections::HashMap;

/// What results are broken down by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Regions of interest.
    Region,
    /// Processes of a guest's kernel.
    Process,
}

/// A change of the open regions, or of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionChange {
    /// A region begins.
    Begin(String),
    /// It ends.
    End(String),
    /// The process that is switched to has this name.
    Name(String),
    /// It runs: its number.
    Switch(u64),
}

impl RegionChange {
    /// What an event does, if anything.
    pub fn of(event: &Event, by: Option<By>) -> Option<RegionChange> {
        let Event::Guest { what, .. } = event else { return None };
        let named = |id: &u64, name: &[u8]| match name {
            [] => format!("#{id}"),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        match (by?, what) {
            (By::Region, GuestEvent::RoiBegin { id, name }) => Some(RegionChange::Begin(named(id, name))),
            (By::Region, GuestEvent::RoiEnd { id, name }) => Some(RegionChange::End(named(id, name))),
            (By::Process, GuestEvent::ThreadName { name }) => {
                Some(RegionChange::Name(String::from_utf8_lossy(name).into_owned()))
            }
            (By::Process, GuestEvent::Event { name, args, .. }) if name == b"switch" => {
                Some(RegionChange::Switch(args[2]))
            }
            _ => None,
        }
    }
}

/// The open regions of a stream, the innermost last; or the process that runs, and the name of the one that comes.
#[derive(Clone, Debug, Default)]
pub struct Regions(Vec<String>, String);

/// A guest that only begins regions does not fill the memory.
const MOST_OPEN: usize = 1024;

impl Regions {
    /// The innermost open region; empty if there is none.
    pub fn current(&self) -> &str {
        self.0.last().map_or("", |r| r)
    }
    /// A region begins or ends.
    pub fn change(&mut self, change: RegionChange) {
        match change {
            RegionChange::Begin(name) => {
                if self.0.len() == MOST_OPEN {
                    self.0.remove(0);
                }
                self.0.push(name);
            }
            RegionChange::End(name) => {
                if let Some(i) = self.0.iter().rposition(|r| *r == name) {
                    self.0.truncate(i);
                }
            }
            RegionChange::Name(name) => self.1 = name,
            RegionChange::Switch(number) => self.0 = vec![format!("{} [{number}]", self.1)],
        }
    }
}

/// Numbers of regions, in the order in which they were first asked for; 0 is outside of all.
#[derive(Clone, Debug)]
pub struct RegionNames {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Default for RegionNames {
    fn default() -> Self {
        RegionNames { names: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }
}

impl RegionNames {
    /// The number of a region; of the empty name, 0.
    pub fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.names.push(name.to_string());
        self.numbers.insert(name.to_string(), self.names.len() - 1);
        self.names.len() - 1
    }
    /// The name of a number that [`RegionNames::number`] gave; empty outside of all regions.
    pub fn name(&self, number: usize) -> &str {
        self.names.get(number).map_or("", |n| n)
    }
    /// As it is shown to people.
    pub fn shown(&self, number: usize) -> &str {
        match self.name(number) {
            "" => "(outside)",
            name => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_0_is_outside() {
        let mut names = RegionNames::default();
        assert_eq!([names.number("b"), names.number("a"), names.number(""), names.number("b")], [1, 2, 0, 1]);
        assert_eq!([names.name(0), names.name(2), names.shown(0), names.shown(1)], ["", "a", "(outside)", "b"]);
    }

    #[test]
    fn innermost_counts_and_ends_close_what_is_within() {
        let mut r = Regions::default();
        let begin = |n: &str| RegionChange::Begin(n.into());
        let end = |n: &str| RegionChange::End(n.into());
        assert_eq!(r.current(), "");
        r.change(end("a"));
        r.change(begin("a"));
        r.change(begin("b"));
        r.change(begin("c"));
        assert_eq!(r.current(), "c");
        r.change(end("b"));
        assert_eq!(r.current(), "a");
        r.change(end("a"));
        assert_eq!(r.current(), "");
        r.change(RegionChange::Name("sh".into()));
        r.change(RegionChange::Switch(7));
        r.change(RegionChange::Name("ls".into()));
        assert_eq!(r.current(), "sh [7]");
        r.change(RegionChange::Switch(8));
        assert_eq!(r.current(), "ls [8]");
        r.change(end("ls [8]"));
        (0..5000).for_each(|_| r.change(begin("x")));
        assert_eq!(r.0.len(), MOST_OPEN);
    }
}
