//! QEMU's targets: for programs (user mode), with where Debian keeps the libraries that their dynamic programs need, and for whole machines.

use std::fmt;

/// A `*-linux-user` or `*-softmmu` target of QEMU 10.0.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// As in `qemu-NAME` or `qemu-system-NAME`.
    pub name: &'static str,
    /// It emulates a whole machine.
    pub system: bool,
    /// Debian's folders for foreign libraries: `/usr/TRIPLET`, and the package that brings the C library there.
    pub cross: &'static [(&'static str, &'static str)],
}

const fn target(name: &'static str, cross: &'static [(&'static str, &'static str)]) -> Target {
    Target { name, system: false, cross }
}

const fn system(name: &'static str) -> Target {
    Target { name, system: true, cross: &[] }
}

/// What is configured and built together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    User,
    /// Its build needs flex and bison, and nobody else's.
    Hexagon,
    System,
}

impl Group {
    pub const ALL: [Group; 3] = [Group::User, Group::Hexagon, Group::System];

    /// All targets of this group.
    pub fn targets(self) -> impl Iterator<Item = &'static Target> {
        TARGETS.iter().chain(SYSTEM_TARGETS).filter(move |t| t.group() == self)
    }
}

/// All of them, as `configs/targets/*-linux-user.mak` has them.
pub const TARGETS: &[Target] = &[
    target("aarch64", &[("aarch64-linux-gnu", "libc6-arm64-cross")]),
    target("aarch64_be", &[]),
    target("alpha", &[("alpha-linux-gnu", "libc6.1-alpha-cross")]),
    target("arm", &[("arm-linux-gnueabihf", "libc6-armhf-cross"), ("arm-linux-gnueabi", "libc6-armel-cross")]),
    target("armeb", &[]),
    target("hexagon", &[]),
    target("hppa", &[("hppa-linux-gnu", "libc6-hppa-cross")]),
    target("i386", &[("i686-linux-gnu", "libc6-i386-cross")]),
    target("loongarch64", &[("loongarch64-linux-gnu", "libc6-loong64-cross")]),
    target("m68k", &[("m68k-linux-gnu", "libc6-m68k-cross")]),
    target("microblaze", &[]),
    target("microblazeel", &[]),
    target("mips", &[("mips-linux-gnu", "libc6-mips-cross"), ("mipsisa32r6-linux-gnu", "libc6-mipsr6-cross")]),
    target(
        "mips64",
        &[("mips64-linux-gnuabi64", "libc6-mips64-cross"), ("mipsisa64r6-linux-gnuabi64", "libc6-mips64r6-cross")],
    ),
    target(
        "mips64el",
        &[
            ("mips64el-linux-gnuabi64", "libc6-mips64el-cross"),
            ("mipsisa64r6el-linux-gnuabi64", "libc6-mips64r6el-cross"),
        ],
    ),
    target(
        "mipsel",
        &[("mipsel-linux-gnu", "libc6-mipsel-cross"), ("mipsisa32r6el-linux-gnu", "libc6-mipsr6el-cross")],
    ),
    target("mipsn32", &[("mips64-linux-gnuabin32", "libc6-mipsn32-cross")]),
    target("mipsn32el", &[("mips64el-linux-gnuabin32", "libc6-mipsn32el-cross")]),
    target("or1k", &[]),
    target("ppc", &[("powerpc-linux-gnu", "libc6-powerpc-cross")]),
    target("ppc64", &[("powerpc64-linux-gnu", "libc6-ppc64-cross")]),
    target("ppc64le", &[("powerpc64le-linux-gnu", "libc6-ppc64el-cross")]),
    target("riscv32", &[]),
    target("riscv64", &[("riscv64-linux-gnu", "libc6-riscv64-cross")]),
    target("s390x", &[("s390x-linux-gnu", "libc6-s390x-cross")]),
    target("sh4", &[("sh4-linux-gnu", "libc6-sh4-cross")]),
    target("sh4eb", &[]),
    target("sparc", &[]),
    target("sparc32plus", &[]),
    target("sparc64", &[("sparc64-linux-gnu", "libc6-sparc64-cross")]),
    target("x86_64", &[("x86_64-linux-gnu", "libc6-amd64-cross")]),
    target("xtensa", &[]),
    target("xtensaeb", &[]),
];

/// All that have TCG, as `configs/targets/*-softmmu.mak` has them.
pub const SYSTEM_TARGETS: &[Target] = &[
    system("aarch64"),
    system("alpha"),
    system("arm"),
    system("avr"),
    system("hppa"),
    system("i386"),
    system("loongarch64"),
    system("m68k"),
    system("microblaze"),
    system("microblazeel"),
    system("mips"),
    system("mips64"),
    system("mips64el"),
    system("mipsel"),
    system("or1k"),
    system("ppc"),
    system("ppc64"),
    system("riscv32"),
    system("riscv64"),
    system("rx"),
    system("s390x"),
    system("sh4"),
    system("sh4eb"),
    system("sparc"),
    system("sparc64"),
    system("tricore"),
    system("x86_64"),
    system("xtensa"),
    system("xtensaeb"),
];

impl Target {
    /// The whole machine called so.
    pub fn system(name: &str) -> Option<&'static Target> {
        SYSTEM_TARGETS.iter().find(|t| t.name == name)
    }

    /// QEMU's program.
    pub fn program(&self) -> String {
        format!("qemu-{}{}", if self.system { "system-" } else { "" }, self.name)
    }

    pub fn named(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|t| t.name == name)
    }

    /// The one that this machine's own programs need.
    pub fn host() -> Option<&'static Target> {
        let name = match std::env::consts::ARCH {
            "x86" => "i386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            "powerpc64" => "ppc64",
            "powerpc" => "ppc",
            other => other,
        };
        Target::named(name)
    }

    pub fn group(&self) -> Group {
        match self.name {
            _ if self.system => Group::System,
            "hexagon" => Group::Hexagon,
            _ => Group::User,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_thirty_three_are_there_once() {
        assert_eq!(TARGETS.len(), 33);
        let mut names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
        names.dedup();
        assert_eq!(names.len(), 33);
        assert!(Target::host().is_some());
        assert_eq!(Group::ALL.map(|g| g.targets().count()), [32, 1, 29]);
    }
}
