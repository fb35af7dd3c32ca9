//! Mappings: every pc that ran lies in a mapping that was reported, and where that has a file the bytes are the file's.

use consumer::Event;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use trapline_tests::{Guest, How, Isa, Run, Trace, What, guest, guest_linked};

struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: Vec<u8>,
}

/// The mappings at a moment.
#[derive(Default)]
struct Maps(Vec<Mapping>);

impl Maps {
    fn remove(&mut self, start: u64, end: u64) {
        let mut left = Vec::new();
        for m in self.0.drain(..) {
            if m.end <= start || end <= m.start {
                left.push(m);
                continue;
            }
            if m.start < start {
                left.push(Mapping { start: m.start, end: start, offset: m.offset, path: m.path.clone() });
            }
            if end < m.end {
                left.push(Mapping { start: end, end: m.end, offset: m.offset + (end - m.start), path: m.path });
            }
        }
        self.0 = left;
    }
    fn find(&self, pc: u64) -> Option<&Mapping> {
        self.0.iter().find(|m| (m.start..m.end).contains(&pc))
    }
}

/// Follows a trace; returns how many instructions ran from each file, by its name.
#[track_caller]
fn follow(t: &Trace) -> HashMap<String, u64> {
    let mut maps = Maps::default();
    let mut files: HashMap<Vec<u8>, Option<Vec<u8>>> = HashMap::new();
    let mut ran: HashMap<String, u64> = HashMap::new();
    for e in &t.events {
        match &e.what {
            What::Other(Event::Mmap { addr, len, offset, path, .. }) => {
                let end = addr + len.next_multiple_of(4096);
                maps.remove(*addr, end);
                maps.0.push(Mapping { start: *addr, end, offset: *offset, path: path.clone() });
            }
            What::Other(Event::Munmap { addr, len }) => maps.remove(*addr, addr + len.next_multiple_of(4096)),
            What::Fetch(bytes) => {
                let m = maps.find(e.pc).unwrap_or_else(|| panic!("{:#x} ran, which lies in no mapping", e.pc));
                let name =
                    String::from_utf8_lossy(m.path.rsplit(|b| *b == b'/').next().unwrap_or_default()).into_owned();
                *ran.entry(name).or_default() += 1;
                if m.path.is_empty() {
                    continue;
                }
                let file = files.entry(m.path.clone()).or_insert_with(|| fs::read(OsStr::from_bytes(&m.path)).ok());
                let file = file.as_ref().unwrap_or_else(|| panic!("{:?} cannot be read", OsStr::from_bytes(&m.path)));
                let at = (e.pc - m.start + m.offset) as usize;
                assert_eq!(
                    Some(&**bytes),
                    file.get(at..at + bytes.len()),
                    "{:#x} is at {at:#x} of {:?}",
                    e.pc,
                    OsStr::from_bytes(&m.path)
                );
            }
            _ => {}
        }
    }
    ran
}

/// A run that finds the libraries of a foreign program.
fn with_libraries(g: &Guest) -> Run {
    match g.isa {
        Isa::X86_64 => g.run(),
        isa => g.run().qemu_arg("-L").qemu_arg(format!("/usr/{}", isa.triplet())),
    }
}

#[test]
fn every_pc_of_a_static_program_lies_in_its_file() {
    for isa in trapline_tests::ALL {
        let g = guest("processes", isa);
        let t = g.run().arg("leaf").trace().code(5);
        let ran = follow(&t);
        let own = g.path.file_name().unwrap().to_str().unwrap();
        assert!(ran[own] > 1000, "{isa:?}: {ran:?}");
    }
}

#[test]
fn every_pc_of_a_static_pie_lies_in_its_file_where_the_image_event_says() {
    for isa in [Isa::X86_64, Isa::Aarch64] {
        let g = guest_linked("maps", isa, How::StaticPie);
        let t = g.trace().code(0);
        let ran = follow(&t);
        assert!(ran[g.path.file_name().unwrap().to_str().unwrap()] > 1000, "{isa:?}: {ran:?}");
        let bias = t.others().find_map(|(_, e)| match e {
            Event::Image { bias, .. } => Some(*bias),
            _ => None,
        });
        let main = g.sym("main") + bias.expect("an image event");
        assert_eq!(t.counts.get(&main).map(|n| n.insns), Some(1), "{isa:?}: main at {main:#x}");
    }
}

#[test]
fn every_pc_of_a_dynamic_program_with_dlopen_lies_in_a_mapping_of_its_file() {
    for isa in trapline_tests::ALL {
        let g = guest_linked("maps", isa, How::Dynamic);
        let t = with_libraries(&g).trace().code(0);
        let ran = follow(&t);
        for part in ["maps-", "ld", "libc.so.6", "libm.so.6"] {
            assert!(
                ran.iter().any(|(name, n)| name.starts_with(part) && *n > 0),
                "{isa:?}: nothing ran from {part}: {ran:?}"
            );
        }
    }
}

#[test]
fn what_a_program_maps_moves_and_unmaps_is_told_with_file_offset_and_protection() {
    for isa in trapline_tests::ALL {
        let t = guest("remap", isa).run().counts().trace().code(0);
        let said = t.finished.out();
        let expected: Vec<&str> = said.lines().filter(|l| *l != "break").collect();
        assert_eq!(expected.len(), 17, "{isa:?}: {said}");
        let told: Vec<String> = t
            .others()
            .filter_map(|(_, e)| match e {
                Event::Mmap { addr, len, prot, offset, path, .. } => {
                    let file = if path.windows(5).any(|w| w == b"remap") { "remap" } else { "-" };
                    assert_eq!(path.is_empty(), file == "-", "{isa:?}: {:?}", OsStr::from_bytes(path));
                    Some(format!("map {addr:x} {len:x} {prot} {offset:x} {file}"))
                }
                Event::Munmap { addr, len } => Some(format!("unmap {addr:x} {len:x}")),
                Event::Mprotect { addr, len, prot } => Some(format!("protect {addr:x} {len:x} {prot}")),
                _ => None,
            })
            .collect();
        let found = told.windows(expected.len()).any(|w| w == expected);
        assert!(found, "{isa:?}: the program did\n{}\nbut told is\n{}", expected.join("\n"), told.join("\n"));
    }
}
