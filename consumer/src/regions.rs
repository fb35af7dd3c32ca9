//! Regions of interest, as the guest marks them through the backdoor: which one is open in a stream.
//!
//! Rules:
//! * What happens belongs to the innermost region that is open. An end closes the innermost region of its name (of its number, if it has no
//!   name), and those that began within it; one without a beginning is nothing.

use crate::{Event, GuestEvent};
use std::collections::HashMap;

/// A change of the open regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionChange {
    /// A region begins.
    Begin(String),
    /// It ends.
    End(String),
}

impl RegionChange {
    /// What an event does to the regions, if anything.
    pub fn of(event: &Event) -> Option<RegionChange> {
        let Event::Guest { what, .. } = event else { return None };
        let named = |id: &u64, name: &[u8]| match name {
            [] => format!("#{id}"),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        match what {
            GuestEvent::RoiBegin { id, name } => Some(RegionChange::Begin(named(id, name))),
            GuestEvent::RoiEnd { id, name } => Some(RegionChange::End(named(id, name))),
            _ => None,
        }
    }
}

/// The open regions of a stream, the innermost last.
#[derive(Clone, Debug, Default)]
pub struct Regions(Vec<String>);

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
        (0..5000).for_each(|_| r.change(begin("x")));
        assert_eq!(r.0.len(), MOST_OPEN);
    }
}
