//! What `-trapline` was given, and what of it belongs to the analyzer.
//!
//! Syntax as QEMU's own options: `key=value,key=value`, a comma in a value is doubled. `opt.KEY=VALUE` is the analyzer's.

use crate::cursor::{Every, Random};
use crate::slots::{Counter, Declared, Kind, Variable};
use crate::vcpu::{Register, RegisterSet, SetMember};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;

/// A part of a file that will lie in the guest's memory.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Mapped {
    pub addr: u64,
    pub length: u64,
    pub prot: u64,
    pub offset: u64,
    pub path: String,
}

impl Mapped {
    fn parse(text: &str) -> Option<Mapped> {
        let mut parts = text.splitn(5, ':');
        let mut number = || parts.next().and_then(integer);
        let (addr, length, prot, offset) = (number()?, number()?, number()?, number()?);
        Some(Mapped { addr, length, prot, offset, path: parts.next()?.into() })
    }
}

/// The options, parsed.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Options {
    pub socket: Option<String>,
    pub wait: usize,
    pub start: bool,
    pub follow_exec: bool,
    pub chunk_size: Option<u32>,
    pub chunks: Option<u32>,
    pub inherit: Option<String>,
    /// Full system, which has none of its own to tell: what lies where.
    pub maps: Vec<Mapped>,
    pub backdoor: crate::backdoor::Options,
    pub analyzer: BTreeMap<String, String>,
}

/// Splits at single commas; doubled ones stand for themselves.
pub(crate) fn split(options: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = options.chars().peekable();
    while let Some(c) = chars.next() {
        if c != ',' {
            parts.last_mut().expect("never empty").push(c);
        } else if chars.peek() == Some(&',') {
            chars.next();
            parts.last_mut().expect("never empty").push(',');
        } else {
            parts.push(String::new());
        }
    }
    parts.retain(|p| !p.is_empty());
    parts
}

pub(crate) const KEYS: &str = "socket=PATH, wait=CONSUMERS, start=on|off, follow-exec=on|off, chunk-size=BYTES, chunks=N, backdoor=on|off, user=on|off, \
     allow=exit+recv+select, recv=FOLDER, roi=NAME, range=LO-HI, image-range=LO-HI, \
     level=user|kernel, space=ROOT, process=NAME, map=ADDRESS:LENGTH:PROTECTION:OFFSET:FILE, \
     skip=N, count=N, every=N, for=N, icount=on|off, opt.KEY=VALUE";

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("-trapline {key}={value}: a number is expected"))
}

pub(crate) fn on_off(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("-trapline {key}={value}: on or off is expected")),
    }
}

impl Options {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut o = Options { start: true, follow_exec: true, ..Options::default() };
        for part in split(text) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!("-trapline {part}: key=value is expected; the keys are {KEYS}"));
            };
            match key {
                "socket" => o.socket = Some(value.to_string()),
                "wait" => o.wait = number(key, value)?,
                "start" => o.start = on_off(key, value)?,
                "follow-exec" => o.follow_exec = on_off(key, value)?,
                "chunk-size" => {
                    let n: u32 = number(key, value)?;
                    if !n.is_power_of_two() || !(64 << 10..=64 << 20).contains(&n) {
                        return Err(format!(
                            "-trapline chunk-size={n}: a power of two from 65536 to 67108864 is expected"
                        ));
                    }
                    o.chunk_size = Some(n);
                }
                "chunks" => {
                    let n: u32 = number(key, value)?;
                    if !(2..=pipe::layout::MAX_CHUNKS as u32).contains(&n) {
                        return Err(format!("-trapline chunks={n}: 2 to {} is expected", pipe::layout::MAX_CHUNKS));
                    }
                    o.chunks = Some(n);
                }
                "map" => o.maps.push(Mapped::parse(value).ok_or_else(|| {
                    format!("-trapline map={value}: ADDRESS:LENGTH:PROTECTION:OFFSET:FILE is expected")
                })?),
                "inherit" => o.inherit = Some(value.to_string()),
                _ if o.backdoor.set(key, value)? => {}
                _ => match key.strip_prefix("opt.") {
                    Some(k) => {
                        o.analyzer.insert(k.to_string(), value.to_string());
                    }
                    None => {
                        return Err(format!("-trapline {key}: no such key; the keys are {KEYS}"));
                    }
                },
            }
        }
        o.backdoor.check()?;
        Ok(o)
    }

    /// As text again, without what holds for this process image only.
    pub fn to_text(&self) -> String {
        let mut parts = Vec::new();
        let mut add = |k: &str, v: &dyn Display| parts.push(format!("{k}={}", v.to_string().replace(',', ",,")));
        if let Some(s) = &self.socket {
            add("socket", s);
        }
        if !self.start {
            add("start", &"off");
        }
        if let Some(n) = self.chunk_size {
            add("chunk-size", &n);
        }
        if let Some(n) = self.chunks {
            add("chunks", &n);
        }
        for (k, v) in self.backdoor.to_pairs() {
            add(k, &v);
        }
        for (k, v) in &self.analyzer {
            add(&format!("opt.{k}"), v);
        }
        parts.join(",")
    }
}

/// What an analyzer can ask QEMU when it starts.
#[derive(Default)]
pub struct Qemu {
    pub(crate) target: String,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) asked: RefCell<BTreeMap<String, &'static str>>,
    pub(crate) errors: RefCell<Vec<String>>,
    pub(crate) slots: Declared,
    pub(crate) register_sets: RefCell<Vec<Vec<SetMember>>>,
}

/// A type that an option's text can be read as.
pub trait FromOption: Sized {
    /// What is expected, for the error message.
    const EXPECTED: &'static str;
    /// Reads it; `None` if it is not such a value.
    fn from_option(text: &str) -> Option<Self>;
}

fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromOption for u64 {
    const EXPECTED: &'static str = "a number, decimal or 0x…";
    fn from_option(text: &str) -> Option<Self> {
        integer(text)
    }
}

impl FromOption for u32 {
    const EXPECTED: &'static str = "a 32-bit number, decimal or 0x…";
    fn from_option(text: &str) -> Option<Self> {
        integer(text)?.try_into().ok()
    }
}

impl FromOption for bool {
    const EXPECTED: &'static str = "on or off";
    fn from_option(text: &str) -> Option<Self> {
        match text {
            "on" | "true" | "yes" | "1" => Some(true),
            "off" | "false" | "no" | "0" => Some(false),
            _ => None,
        }
    }
}

impl FromOption for String {
    const EXPECTED: &'static str = "text";
    fn from_option(text: &str) -> Option<Self> {
        Some(text.to_string())
    }
}

impl FromOption for Range<u64> {
    const EXPECTED: &'static str = "a range LO-HI, HI not included";
    fn from_option(text: &str) -> Option<Self> {
        let (lo, hi) = text.split_once('-')?;
        Some(integer(lo)?..integer(hi)?)
    }
}

impl Qemu {
    /// QEMU's name of the guest's ISA, as in `qemu-x86_64`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The value of the analyzer's option `key`, `None` if it was not given. A value that is not a `T`, or a given key that nothing asks
    /// for, ends QEMU with a message that lists the known keys.
    pub fn option<T: FromOption>(&self, key: &str) -> Option<T> {
        self.asked.borrow_mut().insert(key.to_string(), T::EXPECTED);
        let text = self.options.get(key)?;
        let value = T::from_option(text);
        if value.is_none() {
            self.errors.borrow_mut().push(format!("option {key}={text}: {} is expected", T::EXPECTED));
        }
        value
    }

    /// A counter of which each vCPU has its own, beginning at 0.
    pub fn counter(&self) -> Counter {
        Counter(self.slots.add(Kind::Counter))
    }

    /// A word of the process's that conditions can look at.
    pub fn variable(&self, value: u64) -> Variable {
        Variable(Box::leak(Box::new(AtomicU64::new(value))))
    }

    /// A condition that holds every `n`-th time. Each vCPU counts for itself, over all points that use it.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn every(&self, n: u64) -> Every {
        assert!(n > 0, "every(0): at least 1 is expected");
        Every { slot: self.slots.add(Kind::Every), n }
    }

    /// A condition that holds with this probability. The same seed gives the same choices to a deterministic guest.
    ///
    /// # Panics
    /// If `probability` is not from 0 to 1.
    pub fn random(&self, probability: f64, seed: u64) -> Random {
        assert!((0.0..=1.0).contains(&probability), "random({probability}): a probability from 0 to 1 is expected");
        let threshold = (probability * (1u64 << 32) as f64) as u64;
        Random { slot: self.slots.add(Kind::Random(seed)), threshold }
    }

    /// The register of this name (as QEMU's gdbstub has it: `rax`, `x0`, `a0`, …), `None` if the guest has none.
    pub fn register(&self, name: &str) -> Option<Register> {
        Register::find(name)
    }

    /// The names of all registers that the guest has.
    pub fn register_names(&self) -> Vec<String> {
        Register::all().map(Register::name).filter(|n| !n.is_empty()).collect()
    }

    /// Registers that [`crate::FetchPoint::trace_regs`] and [`crate::FetchPoint::trace_regs_after`] send together; `name:16` is the lowest 16 bytes of one that may be longer. A name that the guest does not
    /// have ends QEMU with the list of those that it has.
    pub fn register_set(&self, names: &[&str]) -> RegisterSet {
        let mut set = Vec::new();
        for given in names {
            let (name, most) = match given.split_once(':') {
                Some((name, most)) => (name, most.parse().ok()),
                None => (*given, Some(usize::MAX)),
            };
            let Some(most) = most else {
                self.errors
                    .borrow_mut()
                    .push(format!("register `{given}`: a number of bytes is expected after the colon"));
                continue;
            };
            match self.register(name) {
                Some(r) => set.push((r, most)),
                None => self.errors.borrow_mut().push(format!(
                    "no register `{name}` in {}; it has {}",
                    self.target,
                    self.register_names().join(", ")
                )),
            }
        }
        let mut sets = self.register_sets.borrow_mut();
        sets.push(set);
        RegisterSet((sets.len() - 1) as u32)
    }

    /// The options that `new` has asked for, with what each expects.
    pub(crate) fn known_options(&self) -> Vec<String> {
        self.asked.borrow().iter().map(|(k, e)| format!("{k} ({e})")).collect()
    }

    /// What is wrong with the options, once `new` has asked for all it knows.
    pub(crate) fn problem(&self, analyzer: &str) -> Option<String> {
        if let Some(e) = self.errors.borrow().first() {
            return Some(format!("analyzer `{analyzer}`: {e}"));
        }
        let asked = self.asked.borrow();
        let unknown = self.options.keys().find(|k| !asked.contains_key(*k))?;
        let known = self.known_options();
        Some(if known.is_empty() {
            format!("analyzer `{analyzer}`: no option `{unknown}`; it has none")
        } else {
            format!("analyzer `{analyzer}`: no option `{unknown}`; it knows {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_commas_stand_for_themselves() {
        let o = Options::parse("socket=/a,,b,wait=2,opt.x=1,,2").unwrap();
        assert_eq!(o.socket.as_deref(), Some("/a,b"));
        assert_eq!(o.wait, 2);
        assert_eq!(o.analyzer["x"], "1,2");
        assert_eq!(Options::parse(&o.to_text()).unwrap().socket, o.socket);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_known_ones() {
        assert!(Options::parse("sokcet=/x").unwrap_err().contains("socket=PATH"));
        let q = Qemu {
            target: "x86_64".into(),
            options: [("txet".to_string(), "1".to_string())].into(),
            ..Qemu::default()
        };
        assert_eq!(q.option::<u64>("text"), None);
        assert!(q.problem("a").unwrap().contains("no option `txet`; it knows text"));
    }

    #[test]
    fn ranges_and_numbers() {
        assert_eq!(Range::<u64>::from_option("0x10-32"), Some(16..32));
        assert_eq!(u32::from_option("4294967296"), None);
    }
}
