//! The guests: which there are, for which ISAs, and how they are built.

use crate::setup::{cache, checkout, scratch};
use crate::{Symbols, process::within};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A guest ISA as the tests know it: a QEMU target, a compiler, and the mode that it compiles for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    X86_64,
    I386,
    Aarch64,
    /// A32
    Arm,
    /// T32
    Thumb,
    Riscv64,
    Mipsel,
    Mips,
    Ppc64le,
    S390x,
    Riscv32,
    Mips64el,
    /// 32 bits, big-endian
    Ppc,
}

impl Isa {
    /// QEMU's name.
    pub fn target(self) -> &'static str {
        match self {
            Isa::X86_64 => "x86_64",
            Isa::I386 => "i386",
            Isa::Aarch64 => "aarch64",
            Isa::Arm | Isa::Thumb => "arm",
            Isa::Riscv64 => "riscv64",
            Isa::Mipsel => "mipsel",
            Isa::Mips => "mips",
            Isa::Ppc64le => "ppc64le",
            Isa::S390x => "s390x",
            Isa::Riscv32 => "riscv32",
            Isa::Mips64el => "mips64el",
            Isa::Ppc => "ppc",
        }
    }

    /// Prefix of Debian's cross compiler, and the folder of its libraries under /usr.
    pub fn triplet(self) -> &'static str {
        match self {
            Isa::X86_64 => "x86_64-linux-gnu",
            Isa::I386 => "i686-linux-gnu",
            Isa::Aarch64 => "aarch64-linux-gnu",
            Isa::Arm | Isa::Thumb => "arm-linux-gnueabihf",
            Isa::Riscv64 | Isa::Riscv32 => "riscv64-linux-gnu",
            Isa::Mipsel | Isa::Mips64el => "mipsel-linux-gnu",
            Isa::Mips => "mips-linux-gnu",
            Isa::Ppc64le | Isa::Ppc => "powerpc64le-linux-gnu",
            Isa::S390x => "s390x-linux-gnu",
        }
    }

    /// Debian's package of the compiler.
    pub fn package(self) -> &'static str {
        match self {
            Isa::X86_64 if cfg!(target_arch = "x86_64") => "gcc",
            Isa::X86_64 => "gcc-x86-64-linux-gnu",
            Isa::I386 => "gcc-i686-linux-gnu",
            Isa::Aarch64 => "gcc-aarch64-linux-gnu",
            Isa::Arm | Isa::Thumb => "gcc-arm-linux-gnueabihf",
            Isa::Riscv64 | Isa::Riscv32 => "gcc-riscv64-linux-gnu",
            Isa::Mipsel | Isa::Mips64el => "gcc-mipsel-linux-gnu",
            Isa::Mips => "gcc-mips-linux-gnu",
            Isa::Ppc64le | Isa::Ppc => "gcc-powerpc64le-linux-gnu",
            Isa::S390x => "gcc-s390x-linux-gnu",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Isa::Arm => &["-marm"],
            Isa::Thumb => &["-mthumb"],
            Isa::Riscv32 => &["-march=rv32imac", "-mabi=ilp32"],
            Isa::Mips64el => &["-mabi=64", "-march=mips64r2"],
            Isa::Ppc => &["-m32", "-mbig"],
            _ => &[],
        }
    }

    /// The guest's byte order.
    pub fn is_big_endian(self) -> bool {
        matches!(self, Isa::Mips | Isa::S390x | Isa::Ppc)
    }

    /// Size of a pointer in bytes.
    pub fn word(self) -> u32 {
        match self {
            Isa::I386 | Isa::Arm | Isa::Thumb | Isa::Mipsel | Isa::Mips | Isa::Riscv32 | Isa::Ppc => 4,
            _ => 8,
        }
    }
}

/// How a guest is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// No C library: it starts at `_start` (`__start` on MIPS).
    Bare,
    /// With the C library, static, at fixed addresses.
    Static,
    /// With the C library, static, position-independent.
    StaticPie,
    /// With the C library, dynamic, position-independent.
    Dynamic,
}

impl How {
    fn flags(self) -> &'static [&'static str] {
        match self {
            How::Bare => &["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,noexecstack"],
            How::Static => &["-static", "-no-pie", "-pthread"],
            How::StaticPie => &["-static-pie", "-pthread"],
            How::Dynamic => &["-pie", "-fPIE", "-pthread"],
        }
    }
}

/// A row of the table.
pub struct Row {
    /// File in `tests/guests/`; its stem is the guest's name.
    pub source: &'static str,
    /// How it is linked.
    pub how: How,
    /// For which ISAs.
    pub isas: &'static [Isa],
    /// More flags of the compiler.
    pub flags: &'static [&'static str],
}

const fn row(source: &'static str, how: How, isas: &'static [Isa], flags: &'static [&'static str]) -> Row {
    Row { source, how, isas, flags }
}

use Isa::*;

const X86: &[Isa] = &[X86_64];
const EVERY: &[Isa] = &crate::ALL;

const RISCV_MACHINE: &[&str] = &["-mcmodel=medany", "-march=rv64imac_zicsr", "-mabi=lp64", "-Wl,-n,-Ttext=0x80000000"];

/// The table of guests.
pub const GUESTS: &[Row] = &[
    // Exact traces.
    row("loop.S", How::Bare, EVERY, &[]),
    row("x86_page_crossing.S", How::Bare, X86, &[]),
    row("x86_helper_accesses.S", How::Bare, X86, &[]),
    row("x86_branches.S", How::Bare, X86, &[]),
    row("x86_count.S", How::Bare, X86, &[]),
    row("x86_short.S", How::Bare, X86, &[]),
    row("x86_gather.S", How::Bare, X86, &[]),
    row("x86_smc.S", How::Bare, X86, &[]),
    row("x86_regions.S", How::Bare, X86, &[]),
    row("x86_deep.S", How::Bare, X86, &[]),
    row("x86_stopped.S", How::Bare, X86, &[]),
    row("x86_top.S", How::Bare, &[X86_64, I386], &[]),
    row("x86_read.S", How::Bare, X86, &[]),
    row("mips_delay_slots.S", How::Bare, &[Mipsel, Mips], &["-mips32r2", "-Wa,-mno-fix-loongson3-llsc"]),
    row("arm_thumb.S", How::Bare, &[Arm], &[]),
    row("arm_exclusive.S", How::Bare, &[Arm, Thumb, Aarch64], &[]),
    row("aarch64_vectors.S", How::Bare, &[Aarch64], &[]),
    row("riscv_compressed.S", How::Bare, &[Riscv64], &[]),
    row("ppc_blocks.S", How::Bare, &[Ppc64le], &[]),
    row("s390x_blocks.S", How::Bare, &[S390x], &[]),
    row("big_endian.S", How::Bare, &[Mips, S390x], &[]),
    row("high.S", How::Bare, &[I386, Arm], &["-Wl,-Ttext-segment=0x90000000"]),
    row("x86_state.S", How::Bare, &[X86_64, I386], &[]),
    row("aarch64_atomics.S", How::Bare, &[Aarch64], &[]),
    row("aarch64_sve.S", How::Bare, &[Aarch64], &[]),
    row("riscv_vectors.S", How::Bare, &[Riscv64], &[]),
    row("ppc_vectors.S", How::Bare, &[Ppc64le], &[]),
    row("s390x_storage.S", How::Bare, &[S390x], &[]),
    row("mips64_parts.S", How::Bare, &[Mips64el], &["-mno-abicalls", "-fno-pic", "-Wa,-mno-fix-loongson3-llsc"]),
    row("ppc_multiple.S", How::Bare, &[Ppc], &[]),
    row("riscv_conditional.S", How::Bare, &[Riscv64, Riscv32], &[]),
    // Whole machines.
    row("riscv_machine.S", How::Bare, &[Riscv64], RISCV_MACHINE),
    row("riscv_spaces.S", How::Bare, &[Riscv64], RISCV_MACHINE),
    row("riscv_paging.S", How::Bare, &[Riscv64], RISCV_MACHINE),
    row("riscv_break.S", How::Bare, &[Riscv64], RISCV_MACHINE),
    row("riscv_forever.S", How::Bare, &[Riscv64], RISCV_MACHINE),
    row("aarch64_machine.S", How::Bare, &[Aarch64], &["-Wl,-n,-Ttext=0x40080000"]),
    row("arm_machine.S", How::Bare, &[Arm], &["-Wl,-n,-Ttext=0x40080000"]),
    row("x86_machine.S", How::Bare, X86, &["-Wl,-n,--section-start=.rom=0xffff0000"]),
    // Regions with known traces within programs that have the C library.
    row("x86_stores.c", How::Static, X86, &[]),
    row("x86_cas.c", How::Static, X86, &[]),
    row("atomics.c", How::Static, EVERY, &["-fno-toplevel-reorder"]),
    row("x86_faults.c", How::Static, X86, &[]),
    row("processes.c", How::Static, EVERY, &[]),
    row("stdio.c", How::Static, EVERY, &[]),
    // What the guest does through the backdoor.
    row("backdoor_region.c", How::Static, EVERY, &[]),
    row("backdoor_ops.c", How::Static, EVERY, &[]),
    row("backdoor_illegal.c", How::Static, EVERY, &[]),
    row("backdoor_edges.c", How::Static, &[X86_64, I386, Riscv64, Thumb], &[]),
    row("backdoor_code16.c", How::Static, &[I386], &[]),
    row("backdoor_roi.c", How::Static, X86, &["-fno-toplevel-reorder"]),
    row("backdoor_threads.c", How::Static, X86, &[]),
    row("backdoor_million.c", How::Static, X86, &[]),
    row("backdoor_idle.c", How::Static, X86, &[]),
    row("backdoor_icount.c", How::Static, X86, &[]),
    row("backdoor_user.c", How::Static, X86, &[]),
    row("backdoor_host.c", How::Static, X86, &[]),
    row("backdoor_fuzz.c", How::Static, EVERY, &[]),
    // Work for the oracle.
    row("calls.c", How::Static, EVERY, &["-fno-ipa-icf", "-fno-ipa-vrp"]),
    row("work.c", How::Static, EVERY, &[]),
    row("signals.c", How::Static, EVERY, &[]),
    row("threads.c", How::Static, EVERY, &[]),
    // What it takes of the host.
    row("crowd.c", How::Static, X86, &[]),
    row("generated.c", How::Static, X86, &[]),
    row("kernel.c", How::Static, EVERY, &[]),
    row("remap.c", How::Static, EVERY, &[]),
    row("maps.c", How::Dynamic, EVERY, &["-DDYNAMIC"]),
    row("maps.c", How::StaticPie, &[X86_64, Aarch64], &[]),
];

/// A guest that is built.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its name.
    pub name: &'static str,
    /// Its ISA.
    pub isa: Isa,
    /// The ELF file.
    pub path: PathBuf,
    /// Its symbols.
    pub symbols: Symbols,
}

fn name_of(row: &Row) -> &'static str {
    row.source.split('.').next().expect("a stem")
}

/// The guest `name` for `isa`, built if need be.
pub fn guest(name: &str, isa: Isa) -> Guest {
    find(name, isa, |_| true)
}

/// The same, of several rows the one that is linked like this.
pub fn guest_linked(name: &str, isa: Isa, how: How) -> Guest {
    find(name, isa, |r| r.how == how)
}

fn find(name: &str, isa: Isa, accept: impl Fn(&Row) -> bool) -> Guest {
    let row = GUESTS
        .iter()
        .find(|r| name_of(r) == name && r.isas.contains(&isa) && accept(r))
        .unwrap_or_else(|| panic!("no guest {name} for {isa:?} in the table"));
    let path = build(row, isa);
    Guest { name: name_of(row), isa, symbols: Symbols::read(&path), path }
}

/// Builds every guest of the table; returns how many there are.
pub fn build_all() -> usize {
    let mut count = 0;
    for row in GUESTS {
        for isa in row.isas {
            build(row, *isa);
            count += 1;
        }
    }
    count
}

fn build(row: &Row, isa: Isa) -> PathBuf {
    let sources = checkout().join("tests/guests");
    let source = sources.join(row.source);
    let mut command = Command::new(format!("{}-gcc", isa.triplet()));
    let library = checkout().join("guest-lib/include");
    command.args(["-O1", "-g", "-fno-stack-protector", "-Wall", "-Werror"]);
    command.arg("-I").arg(&sources).arg("-I").arg(&library);
    command.args(isa.flags()).args(row.how.flags()).args(row.flags).arg(&source);
    if row.how != How::Bare {
        // After what needs it.
        command.arg("-lm");
    }

    let mut hash = DefaultHasher::new();
    format!("{command:?}").hash(&mut hash);
    for file in [&source, &sources.join("guest.h"), &library.join("trapline.h")] {
        fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).hash(&mut hash);
    }
    let folder = cache().join("test-guests").join(format!("{isa:?}").to_lowercase());
    let path = folder.join(format!("{}-{:016x}", name_of(row), hash.finish()));
    if path.exists() {
        return path;
    }
    // Built aside and renamed: whoever comes second replaces the file by the same one.
    let aside = scratch();
    let out = aside.path().join("guest");
    within(Duration::from_secs(120), command.arg("-o").arg(&out)).code(0);
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    publish(&out, &path);
    path
}

/// Copies next to `to` and renames, so that nobody sees a half-written file, nor one that is still open for writing.
fn publish(from: &Path, to: &Path) {
    let near = to.with_extension(format!("new{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::copy(from, &near).and_then(|_| fs::rename(&near, to)).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
}
