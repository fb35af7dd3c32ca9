//! The backdoor on ISAs that the machine may have no compiler for: guests of a dozen instructions, assembled by hand.
//!
//! One adds 40 and 2 through the backdoor (`ECHO`), and exits with the sum: 42; the other asks whether somebody answers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Ended, Finished, Guest, Isa, Symbols, What, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(60);
const BASE: u64 = 0x10000;

/// An ISA's ELF identity and code.
struct Hand {
    target: &'static str,
    machine: u16,
    flags: u32,
    wide: bool,
    big: bool,
    /// If not QEMU's own choice.
    cpu: Option<&'static str>,
    /// The entry's lowest bit: microMIPS.
    bit: u64,
    /// Length of the units that `code` is made of, in bytes.
    unit: usize,
    /// Number of the unit that holds the magic's last bit, and where in it.
    magic: (usize, u32),
    /// Number of the call's first unit.
    call: usize,
    code: &'static [u32],
    /// Sets the result to 0, probes, and exits with the result's upper half.
    probe: &'static [u32],
}

impl Hand {
    /// Where the code begins in the file.
    fn start(&self) -> usize {
        let (eh, ph) = if self.wide { (64, 56) } else { (52, 32) };
        (eh + ph + 15) & !15
    }
}

/// A file with one loaded segment: headers, then the code.
fn elf(h: &Hand, path: &Path, code: &[u32]) {
    elf_at(h, path, code, h.start());
}

/// The same, with the code at this offset.
fn elf_at(h: &Hand, path: &Path, code: &[u32], start: usize) {
    let mut f: Vec<u8> = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(h.wide), 1 + u8::from(h.big), 1];
    f.resize(16, 0);
    let put = |f: &mut Vec<u8>, n: u64, len: usize| {
        if h.big { f.extend(&n.to_be_bytes()[8 - len..]) } else { f.extend(&n.to_le_bytes()[..len]) }
    };
    let word = if h.wide { 8 } else { 4 };
    let (eh, ph) = if h.wide { (64, 56) } else { (52, 32) };
    let end = start + code.len() * h.unit;
    put(&mut f, 2, 2); // ET_EXEC
    put(&mut f, h.machine.into(), 2);
    put(&mut f, 1, 4);
    put(&mut f, BASE + start as u64 + h.bit, word);
    put(&mut f, eh as u64, word);
    put(&mut f, 0, word);
    put(&mut f, h.flags.into(), 4);
    for n in [eh, ph, 1, 0, 0, 0] {
        put(&mut f, n as u64, 2);
    }
    put(&mut f, 1, 4); // PT_LOAD
    if h.wide {
        put(&mut f, 5, 4);
    }
    for n in [0, BASE, BASE, end as u64, end as u64] {
        put(&mut f, n, word);
    }
    if !h.wide {
        put(&mut f, 5, 4);
    }
    put(&mut f, 0x1000, word);
    f.resize(start, 0);
    for n in code {
        put(&mut f, (*n).into(), h.unit);
    }
    fs::write(path, f).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Under Trapline, with nobody attached.
fn run(qemu: &Path, cpu: &[&str], program: &Path, folder: &Path) -> Finished {
    let settings = format!("socket={},start=off", folder.join("s").display());
    within(LIMIT, Command::new(qemu).args(cpu).arg("-trapline").arg(settings).arg(program))
}

const HANDS: &[Hand] = &[
    Hand {
        target: "mipsel",
        machine: 8,
        flags: 0x9000_1400,
        wide: false,
        big: false,
        cpu: Some("mips32r6-generic"),
        bit: 0,
        unit: 4,
        magic: (0, 0),
        call: 4,
        code: &[
            0x3c02_5443, // lui $2, 0x5443
            0x3442_0002, // ori $2, $2, 2
            0x2404_0028, // addiu $4, $0, 40
            0x2405_0002, // addiu $5, $0, 2
            0x0417_5154, // call: SIGRIE of release 6
            0x0040_2025, // or $4, $2, $0
            0x2402_1096, // addiu $2, $0, 4246: exit_group
            0x0000_000c, // syscall
        ],
        probe: &[
            0x2402_0000, // addiu $2, $0, 0
            0x3400_5154, // probe
            0x0002_2402, // srl $4, $2, 16
            0x2402_1096, // addiu $2, $0, 4246
            0x0000_000c, // syscall
        ],
    },
    Hand {
        target: "mips",
        machine: 8,
        flags: 0x7200_1000,
        wide: false,
        big: true,
        cpu: Some("M14Kc"),
        bit: 1,
        unit: 2,
        magic: (1, 0),
        call: 8,
        code: &[
            0x41a2, 0x5443, // lui $2, 0x5443
            0x5042, 0x0002, // ori $2, $2, 2
            0x3080, 0x0028, // addiu $4, $0, 40
            0x30a0, 0x0002, // addiu $5, $0, 2
            0x0014, 0x553f, // call
            0x0c82, // move $4, $2
            0x3040, 0x1096, // addiu $2, $0, 4246: exit_group
            0x0000, 0x8b7c, // syscall
        ],
        probe: &[
            0x3040, 0x0000, // addiu $2, $0, 0
            0x5000, 0x5154, // probe
            0x0082, 0x8040, // srl $4, $2, 16
            0x3040, 0x1096, // addiu $2, $0, 4246
            0x0000, 0x8b7c, // syscall
        ],
    },
    Hand {
        target: "mipsel",
        machine: 8,
        flags: 0x7400_1000,
        wide: false,
        big: false,
        cpu: Some("24Kf"),
        // MIPS16
        bit: 1,
        unit: 2,
        magic: (2, 0),
        call: 8,
        code: &[
            0x6a54, // li v0, 0x54
            0x3240, // sll v0, v0, 8
            0x4a43, // addiu v0, 0x43
            0x3240, // sll v0, v0, 8
            0x3240, // sll v0, v0, 8
            0x4a02, // addiu v0, 2
            0x6d02, // li a1, 2
            0x6c28, // li a0, 40
            0xed55, // call
            0x6782, // move a0, v0
            0xf082, 0x6a16, // li v0, 4246: exit_group
            0x1c00, 0x4020, // jalx to what follows, at 0x10080
            0x6500, 0x6500, // nop
            0x000c, 0x0000, // syscall, as MIPS
        ],
        probe: &[
            0x6a00, // li v0, 0
            0x6505, // probe
            0x3242, // srl v0, v0, 8
            0x3242, // srl v0, v0, 8
            0x6782, // move a0, v0
            0xf082, 0x6a16, // li v0, 4246
            0x1c00, 0x401d, // jalx to what follows, at 0x10074
            0x6500, // nop
            0x000c, 0x0000, // syscall, as MIPS
        ],
    },
    Hand {
        target: "mipsel",
        machine: 8,
        flags: 0x1000,
        wide: false,
        big: false,
        // nanoMIPS
        cpu: Some("I7200"),
        bit: 0,
        unit: 2,
        magic: (0, 0),
        call: 8,
        code: &[
            0xe043, 0x0a88, // lui t4, 0x54430
            0x8042, 0x0002, // ori t4, t4, 2
            0x0080, 0x0028, // addiu a0, zero, 40
            0x00a0, 0x0002, // addiu a1, zero, 2
            0x0000, 0x5154, // call
            0x0082, 0x0000, // addiu a0, t4, 0
            0x0040, 0x1096, // addiu t4, zero, 4246: exit_group
            0x0008, 0x0000, // syscall
        ],
        probe: &[
            0x0040, 0x0000, // addiu t4, zero, 0
            0x8000, 0x0154, // probe
            0x8082, 0xc050, // srl a0, t4, 16
            0x0040, 0x1096, // addiu t4, zero, 4246
            0x0008, 0x0000, // syscall
        ],
    },
    Hand {
        target: "xtensa",
        machine: 94,
        flags: 0,
        wide: false,
        big: false,
        cpu: None,
        bit: 0,
        unit: 1,
        magic: (26, 0),
        call: 48,
        code: &[
            0x22, 0xa0, 0x00, // movi a2, 0
            0x10, 0x11, 0x10, // probe
            0x20, 0xa0, 0x05, // extui a10, a2, 16, 1: the probe's ABI
            0x62, 0xa0, 0x27, // movi a6, 39
            0xa0, 0x66, 0x80, // add a6, a6, a10
            0x32, 0xa0, 0x02, // movi a3, 2
            0x22, 0xa5, 0x44, // movi a2, 0x544
            0xc0, 0x22, 0x01, // slli a2, a2, 20
            0x42, 0xa0, 0x03, // movi a4, 3
            0x00, 0x44, 0x11, // slli a4, a4, 16
            0x40, 0x22, 0x20, // or a2, a2, a4
            0x22, 0xc2, 0x02, // addi a2, a2, 2
            0xf0, 0x20, 0x00, // nop
            0xf0, 0x20, 0x00, // nop
            0xf0, 0x20, 0x00, // nop
            0xf0, 0x20, 0x00, // nop
            0x00, 0x00, 0x00, 0x10, 0x11, 0x10, // call, at a multiple of 8
            0x20, 0x62, 0x20, // or a6, a2, a2
            0x22, 0xa0, 0x77, // movi a2, 119: exit_group
            0x00, 0x50, 0x00, // syscall
        ],
        probe: &[
            0x22, 0xa0, 0x00, // movi a2, 0
            0x10, 0x11, 0x10, // probe
            0x20, 0x60, 0x05, // extui a6, a2, 16, 1
            0x22, 0xa0, 0x77, // movi a2, 119
            0x00, 0x50, 0x00, // syscall
        ],
    },
    Hand {
        target: "xtensaeb",
        machine: 94,
        flags: 0,
        wide: false,
        big: true,
        cpu: None,
        bit: 0,
        unit: 1,
        magic: (26, 0),
        call: 48,
        code: &[
            0x22, 0x0a, 0x00, // movi a2, 0
            0x01, 0x11, 0x01, // probe
            0x02, 0x0a, 0x50, // extui a10, a2, 16, 1: the probe's ABI
            0x26, 0x0a, 0x27, // movi a6, 39
            0x0a, 0x66, 0x08, // add a6, a6, a10
            0x23, 0x0a, 0x02, // movi a3, 2
            0x22, 0x5a, 0x44, // movi a2, 0x544
            0x0c, 0x22, 0x10, // slli a2, a2, 20
            0x24, 0x0a, 0x03, // movi a4, 3
            0x00, 0x44, 0x11, // slli a4, a4, 16
            0x04, 0x22, 0x02, // or a2, a2, a4
            0x22, 0x2c, 0x02, // addi a2, a2, 2
            0x0f, 0x02, 0x00, // nop
            0x0f, 0x02, 0x00, // nop
            0x0f, 0x02, 0x00, // nop
            0x0f, 0x02, 0x00, // nop
            0x00, 0x00, 0x00, 0x01, 0x11, 0x01, // call, at a multiple of 8
            0x02, 0x26, 0x02, // or a6, a2, a2
            0x22, 0x0a, 0x77, // movi a2, 119: exit_group
            0x00, 0x05, 0x00, // syscall
        ],
        probe: &[
            0x22, 0x0a, 0x00, // movi a2, 0
            0x01, 0x11, 0x01, // probe
            0x02, 0x06, 0x50, // extui a6, a2, 16, 1
            0x22, 0x0a, 0x77, // movi a2, 119
            0x00, 0x05, 0x00, // syscall
        ],
    },
    Hand {
        target: "loongarch64",
        machine: 258,
        flags: 0x43,
        wide: true,
        big: false,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (4, 9),
        call: 8,
        code: &[
            0x0280_0004, // addi.w a0, zero, 0
            0x0345_5000, // probe
            0x4400_0880, // bnez a0, +8
            0x5800_0000, // beq zero, zero, .: hangs if nobody answers
            0x14a8_860b, // lu12i.w a7, 0x54430
            0x0380_096b, // ori a7, a7, 2
            0x0280_a004, // addi.w a0, zero, 40
            0x0280_0805, // addi.w a1, zero, 2
            0x3860_5484, // call
            0x0281_780b, // addi.w a7, zero, 94: exit_group
            0x002b_0000, // syscall 0
        ],
        probe: &[
            0x0280_0004, // addi.w a0, zero, 0
            0x0345_5000, // probe
            0x0044_c084, // srli.w a0, a0, 16
            0x0281_780b, // addi.w a7, zero, 94
            0x002b_0000, // syscall 0
        ],
    },
    Hand {
        target: "or1k",
        machine: 92,
        flags: 0,
        wide: false,
        big: true,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 0),
        call: 6,
        code: &[
            0x1960_5443, // l.movhi r11, 0x5443
            0xa96b_0002, // l.ori r11, r11, 2
            0x1860_0000, // l.movhi r3, 0
            0xa863_0028, // l.ori r3, r3, 40
            0x1880_0000, // l.movhi r4, 0
            0xa884_0002, // l.ori r4, r4, 2
            0x7000_5154, // call
            0xa86b_0000, // l.ori r3, r11, 0
            0x1960_0000, // l.movhi r11, 0
            0xa96b_005e, // l.ori r11, r11, 94: exit_group
            0x2000_0001, // l.sys 1
        ],
        probe: &[
            0x1960_0000, // l.movhi r11, 0
            0x1500_5154, // probe
            0xb86b_0050, // l.srli r3, r11, 16
            0x1960_0000, // l.movhi r11, 0
            0xa96b_005e, // l.ori r11, r11, 94
            0x2000_0001, // l.sys 1
        ],
    },
    Hand {
        target: "microblaze",
        machine: 189,
        flags: 0,
        wide: false,
        big: true,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 0),
        call: 4,
        code: &[
            0xb000_5443, // imm 0x5443
            0x3180_0002, // addik r12, r0, 2
            0x30a0_0028, // addik r5, r0, 40
            0x30c0_0002, // addik r6, r0, 2
            0xfc00_5154, // call
            0x10a3_0000, // addk r5, r3, r0
            0x3180_00fc, // addik r12, r0, 252: exit_group
            0xb9cc_0008, // brki r14, 8
        ],
        probe: &[
            0x3060_0000, // addik r3, r0, 0
            0xa000_5154, // probe
            0x64a3_0010, // bsrli r5, r3, 16
            0x3180_00fc, // addik r12, r0, 252
            0xb9cc_0008, // brki r14, 8
        ],
    },
    Hand {
        target: "sparc64",
        machine: 43,
        flags: 0,
        wide: true,
        big: true,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 6),
        call: 4,
        code: &[
            0x0315_10c0, // sethi %hi(0x54430000), %g1
            0x8210_6002, // or %g1, 2, %g1
            0x9010_2028, // mov 40, %o0
            0x9210_2002, // mov 2, %o1
            0x0035_5154, // call
            0x8210_20bc, // mov 188, %g1: exit_group
            0x91d0_206d, // ta 0x6d
        ],
        probe: &[
            0x9010_2000, // mov 0, %o0
            0x0135_5154, // probe
            0x9132_2010, // srl %o0, 16, %o0
            0x8210_20bc, // mov 188, %g1
            0x91d0_206d, // ta 0x6d
        ],
    },
    Hand {
        target: "m68k",
        machine: 4,
        flags: 0,
        wide: false,
        big: true,
        cpu: None,
        bit: 0,
        unit: 2,
        magic: (1, 0),
        call: 5,
        code: &[
            0x203c, 0x5443, 0x0002, // move.l #0x54430002, d0
            0x7228, // moveq #40, d1
            0x7402, // moveq #2, d2
            0x4afc, 0x5154, // call
            0x2200, // move.l d0, d1
            0x203c, 0x0000, 0x00f7, // move.l #247, d0: exit_group
            0x4e40, // trap #0
        ],
        probe: &[
            0x7000, // moveq #0, d0
            0x51fa, 0x5154, // probe
            0x4840, // swap d0
            0x2200, // move.l d0, d1
            0x203c, 0x0000, 0x00f7, // move.l #247, d0
            0x4e40, // trap #0
        ],
    },
    Hand {
        target: "sh4",
        machine: 42,
        flags: 9,
        wide: false,
        big: false,
        cpu: None,
        bit: 0,
        unit: 2,
        magic: (11, 0),
        call: 4,
        code: &[
            0xd304, // mov.l @(16, pc), r3
            0xe428, // mov #40, r4
            0xe502, // mov #2, r5
            0x0009, // nop
            0xfffd, 0x5154, // call
            0x6403, // mov r0, r4
            0xe301, // mov #1, r3: exit
            0xc313, // trapa #0x13
            0x0009, // nop
            0x0002, 0x5443, // what is loaded: 20 bytes from the start
        ],
        probe: &[
            0xe000, // mov #0, r0
            0x0009, // nop
            0x2ee9, 0x2eeb, // probe
            0x4029, // shlr16 r0
            0x6403, // mov r0, r4
            0xe301, // mov #1, r3
            0xc313, // trapa #0x13
        ],
    },
    Hand {
        target: "alpha",
        machine: 0x9026,
        flags: 0,
        wide: true,
        big: false,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 0),
        call: 4,
        code: &[
            0x241f_5443, // ldah $0, 0x5443($31)
            0x2000_0002, // lda $0, 2($0)
            0x221f_0028, // lda $16, 40($31)
            0x223f_0002, // lda $17, 2($31)
            0x0400_5154, // call
            0x47e0_0410, // mov $0, $16
            0x201f_0195, // lda $0, 405($31): exit_group
            0x0000_0083, // callsys
        ],
        probe: &[
            0x201f_0000, // lda $0, 0($31)
            0x23ff_5154, // probe
            0x4802_1690, // srl $0, 16, $16
            0x201f_0195, // lda $0, 405($31)
            0x0000_0083, // callsys
        ],
    },
    Hand {
        target: "hppa",
        machine: 15,
        flags: 0,
        wide: false,
        big: true,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 19),
        call: 4,
        code: &[
            0x2298_0a88, // ldil L%0x54430000, %r20
            0x3694_0004, // ldo 2(%r20), %r20
            0x341a_0050, // ldo 40(%r0), %r26
            0x3419_0004, // ldo 2(%r0), %r25
            0xfffd_5154, // call
            0x379a_0000, // ldo 0(%r28), %r26
            0x3414_01bc, // ldo 222(%r0), %r20: exit_group
            0xe400_8200, // ble 0x100(%sr2, %r0)
            0x0800_0240, // nop
        ],
        probe: &[
            0x341c_0000, // ldo 0(%r0), %r28
            0x3400_02a8, // probe
            0xd39a_19f0, // extrw,u %r28, 15, 16, %r26
            0x3414_01bc, // ldo 222(%r0), %r20
            0xe400_8200, // ble 0x100(%sr2, %r0)
            0x0800_0240, // nop
        ],
    },
    Hand {
        target: "mips64el",
        machine: 8,
        flags: 0x8000_0000,
        wide: true,
        big: false,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 0),
        call: 4,
        code: &[
            0x3c02_5443, // lui $2, 0x5443
            0x3442_0002, // ori $2, $2, 2
            0x2404_0028, // addiu $4, $0, 40
            0x2405_0002, // addiu $5, $0, 2
            0x0417_5154, // call
            0x0040_2025, // or $4, $2, $0
            0x2402_1455, // addiu $2, $0, 5205: exit_group
            0x0000_000c, // syscall
        ],
        probe: &[
            0x2402_0000, // addiu $2, $0, 0
            0x3400_5154, // probe
            0x0002_2402, // srl $4, $2, 16
            0x2402_1455, // addiu $2, $0, 5205
            0x0000_000c, // syscall
        ],
    },
    Hand {
        target: "ppc",
        machine: 20,
        flags: 0,
        wide: false,
        big: true,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 0),
        call: 4,
        code: &[
            0x3c00_5443, // lis r0, 0x5443
            0x6000_0002, // ori r0, r0, 2
            0x3860_0028, // li r3, 40
            0x3880_0002, // li r4, 2
            0x0000_0000,
            0x5294_02b6, // call, at a multiple of 8
            0x3800_00ea, // li r0, 234: exit_group
            0x4400_0002, // sc
        ],
        probe: &[
            0x3860_0000, // li r3, 0
            0x6000_0000, // nop
            0x5294_02b6, // probe, at a multiple of 8
            0x5463_843e, // srwi r3, r3, 16
            0x3800_00ea, // li r0, 234
            0x4400_0002, // sc
        ],
    },
    Hand {
        target: "riscv32",
        machine: 243,
        flags: 0,
        wide: false,
        big: false,
        cpu: None,
        bit: 0,
        unit: 4,
        magic: (0, 16),
        call: 4,
        code: &[
            0x5443_08b7, // lui a7, 0x54430
            0x0028_8893, // addi a7, a7, 2
            0x0280_0513, // li a0, 40
            0x0020_0593, // li a1, 2
            0xc008_9073, // call
            0x05e0_0893, // li a7, 94: exit_group
            0x0000_0073, // ecall
        ],
        probe: &[
            0x0000_0513, // li a0, 0
            0x5140_2013, // probe
            0x0105_5513, // srli a0, a0, 16
            0x05e0_0893, // li a7, 94
            0x0000_0073, // ecall
        ],
    },
];

/// QEMU's user mode has no address in these signals.
const TELLS_NO_ADDRESS: &[&str] = &["mips", "mipsel", "mips64el"];

#[test]
fn a_call_comes_through_and_is_illegal_where_nobody_answers() {
    let folder = scratch();
    for h in HANDS {
        let name = format!("{} {:#x}", h.target, h.flags);
        let program: PathBuf = folder.path().join("guest");
        elf(h, &program, h.code);
        let emulator = qemu(h.target, "trace");
        let cpu = h.cpu.map_or(vec![], |c| vec!["-cpu", c]);
        let f = run(&emulator, &cpu, &program, folder.path());
        assert_eq!(f.ended, Ended::Code(42), "{name}: {}", f.err());
        // QEMU's MicroBlaze has no exception for it in user mode: it goes on, and exits with what is in r3.
        let expected = if h.target == "microblaze" { Ended::Code(0) } else { Ended::Signal(libc::SIGILL) };
        // Without the option the same instruction is illegal (but LoongArch's guest asks first, and waits).
        if h.target != "loongarch64" {
            let f = within(LIMIT, Command::new(&emulator).args(&cpu).arg(&program));
            assert_eq!(f.ended, expected, "{name}: {}", f.err());
        }
        // And it is with it, but without the magic; where it stands.
        let mut code = h.code.to_vec();
        code[h.magic.0] ^= 1 << h.magic.1;
        elf(h, &program, &code);
        let f = run(&emulator, &[&cpu[..], &["-strace"]].concat(), &program, folder.path());
        assert_eq!(f.ended, expected, "{name}, no magic: {}", f.err());
        if expected != Ended::Code(0) && !TELLS_NO_ADDRESS.contains(&h.target) {
            let err = f.err();
            let told = err.split("si_addr=0x").nth(1).and_then(|t| t.split('}').next());
            let told = told.and_then(|t| u64::from_str_radix(t, 16).ok());
            // HPPA's addresses of instructions end in the privilege level.
            let told = told.map(|t| if h.target == "hppa" { t & !3 } else { t });
            // Alpha's trap comes behind the instruction (Architecture Handbook: OPCDEC).
            let behind = if h.target == "alpha" { 4 } else { 0 };
            assert_eq!(told, Some(BASE + (h.start() + h.call * h.unit) as u64 + behind), "{name}: {err}");
        }
    }
}

/// START and STOP made of a guest's ECHO: where its arguments begin to be loaded, the units with the operation's number and with the first argument
/// and how far up they are in them, the units of a call, and the lengths of the instructions before it.
struct Region {
    target: &'static str,
    flags: u32,
    from: usize,
    op: (usize, u32),
    arg: (usize, u32),
    call: usize,
    lengths: &'static [u64],
}

impl Region {
    fn hand(&self) -> &'static Hand {
        HANDS.iter().find(|h| (h.target, h.flags) == (self.target, self.flags)).expect("its guest is in the table")
    }
}

#[rustfmt::skip]
const REGIONS: &[Region] = &[
    Region { target: "mipsel", flags: 0x9000_1400, from: 0, op: (1, 0), arg: (2, 0), call: 1, lengths: &[4; 4] },
    Region { target: "mips", flags: 0x7200_1000, from: 0, op: (3, 0), arg: (5, 0), call: 2, lengths: &[4; 4] },
    Region { target: "mipsel", flags: 0x1000, from: 0, op: (3, 0), arg: (5, 0), call: 2, lengths: &[4; 4] },
    Region { target: "loongarch64", flags: 0x43, from: 4, op: (5, 10), arg: (6, 10), call: 1, lengths: &[4; 4] },
    Region { target: "or1k", flags: 0, from: 0, op: (1, 0), arg: (3, 0), call: 1, lengths: &[4; 6] },
    Region { target: "microblaze", flags: 0, from: 0, op: (1, 0), arg: (2, 0), call: 1, lengths: &[4; 4] },
    Region { target: "sparc64", flags: 0, from: 0, op: (1, 0), arg: (2, 0), call: 1, lengths: &[4; 4] },
    Region { target: "m68k", flags: 0, from: 0, op: (2, 0), arg: (3, 0), call: 2, lengths: &[6, 2, 2] },
    Region { target: "alpha", flags: 0, from: 0, op: (1, 0), arg: (2, 0), call: 1, lengths: &[4; 4] },
    Region { target: "hppa", flags: 0, from: 0, op: (1, 1), arg: (2, 1), call: 1, lengths: &[4; 4] },
    Region { target: "mips64el", flags: 0x8000_0000, from: 0, op: (1, 0), arg: (2, 0), call: 1, lengths: &[4; 4] },
    Region { target: "ppc", flags: 0, from: 0, op: (1, 0), arg: (2, 0), call: 2, lengths: &[4; 4] },
    Region { target: "riscv32", flags: 0, from: 0, op: (1, 20), arg: (2, 20), call: 1, lengths: &[4; 4] },
];

/// Exactly the instructions that load the arguments of STOP are in the stream.
#[test]
fn exactly_what_is_between_start_and_stop() {
    let folder = scratch();
    for r in REGIONS {
        let h = r.hand();
        let name = format!("{} {:#x}", h.target, h.flags);
        let operation = |number: u32| {
            let mut code = h.code[..h.call + r.call].to_vec();
            // ECHO is 2; of its sum 40 becomes the scope: this vCPU.
            code[r.op.0] += (number - 2) << r.op.1;
            code[r.arg.0] -= 39 << r.arg.1;
            code
        };
        let mut code = operation(0x10);
        let begin = BASE + (h.start() + code.len() * h.unit) as u64;
        code.extend(&operation(0x11)[r.from..]);
        code.extend(&h.code[h.call + r.call..]);
        let program = folder.path().join("guest");
        elf(h, &program, &code);
        let mut c = Command::new(trapline());
        c.args(["run", "--start-off", "--analyzer", "trace", "--format", "json", "-o", "-", "--"]).arg(&program);
        if let Some(cpu) = h.cpu {
            c.env("QEMU_CPU", cpu);
        }
        // STOP's result is the depth: 0.
        let f = within(LIMIT, &mut c).code(0);
        let pcs: Vec<u64> = f
            .out()
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
            .filter(|e| e["ev"] == "fetch")
            .map(|e| u64::from_str_radix(&e["pc"].as_str().unwrap()[2..], 16).unwrap())
            .collect();
        let want: Vec<u64> = (0..r.lengths.len()).map(|i| begin + r.lengths[..i].iter().sum::<u64>()).collect();
        assert_eq!(pcs, want, "{name}");
    }
}

/// Where a call has two units a page may end between them.
#[test]
fn a_call_across_the_end_of_a_page_comes_through() {
    let folder = scratch();
    let mut count = 0;
    for r in REGIONS.iter().filter(|r| r.call == 2) {
        let h = r.hand();
        // PowerPC's is aligned to its length.
        if h.unit != 2 {
            continue;
        }
        let call = h.call * h.unit;
        let start = (h.start()..).find(|start| (BASE as usize + start + call) % 4096 == 4096 - h.unit).unwrap();
        let program = folder.path().join("guest");
        elf_at(h, &program, h.code, start);
        let cpu = h.cpu.map_or(vec![], |c| vec!["-cpu", c]);
        let f = run(&qemu(h.target, "trace"), &cpu, &program, folder.path());
        assert_eq!(f.ended, Ended::Code(42), "{} {:#x}: {}", h.target, h.flags, f.err());
        count += 1;
    }
    assert_eq!(count, 3, "m68k, microMIPS, nanoMIPS");
}

/// Where the signals have no address the stream has.
#[test]
fn on_mips_the_stream_tells_where_it_was_illegal() {
    let folder = scratch();
    for h in HANDS.iter().filter(|h| h.target == "mipsel") {
        let name = format!("{} {:#x}", h.target, h.flags);
        let program = folder.path().join("guest");
        let mut code = h.code.to_vec();
        code[h.magic.0] ^= 1 << h.magic.1;
        elf(h, &program, &code);
        let g = Guest { name: "hand", isa: Isa::Mipsel, path: program.clone(), symbols: Symbols::read(&program) };
        let run = || g.run().qemu_arg("-cpu").qemu_arg(h.cpu.expect("one that has the mode"));
        let call = BASE + (h.start() + h.call * h.unit) as u64;
        let aborted = |t: &trapline_tests::Trace| -> Vec<u64> {
            t.events.iter().filter(|e| matches!(e.what, What::Aborted(_))).map(|e| e.pc).collect()
        };
        let t = run().trace();
        assert_eq!((t.ended(), aborted(&t)), (Ended::Signal(libc::SIGILL), vec![call]), "{name}");
        // With the magic it retires, and its bytes are those of the table.
        elf(h, &program, h.code);
        let t = run().trace().code(42);
        assert!(aborted(&t).is_empty(), "{name}");
        let bytes = t.events.iter().filter(|e| e.pc == call).find_map(|e| match &e.what {
            What::Fetch(bytes) => Some(bytes.to_vec()),
            _ => None,
        });
        let bytes = bytes.unwrap_or_else(|| panic!("{name}: no call"));
        assert_eq!(bytes.len(), if h.bit == 1 { 2 } else { 4 }, "{name}");
        let units = bytes.chunks(h.unit).map(little).collect::<Vec<_>>();
        assert_eq!(units, h.code[h.call..h.call + units.len()], "{name}");
    }
}

fn little(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

#[test]
fn a_probe_is_answered_and_does_nothing_where_nobody_answers() {
    let folder = scratch();
    for h in HANDS {
        let name = format!("{} {:#x}", h.target, h.flags);
        let program: PathBuf = folder.path().join("guest");
        elf(h, &program, h.probe);
        let emulator = qemu(h.target, "trace");
        let cpu = h.cpu.map_or(vec![], |c| vec!["-cpu", c]);
        let f = run(&emulator, &cpu, &program, folder.path());
        assert_eq!(f.ended, Ended::Code(backdoor::ABI as i32), "{name}: {}", f.err());
        let mut without = vec![emulator];
        // The distribution's, if it is there.
        without.extend(Some(PathBuf::from(format!("/usr/bin/qemu-{}", h.target))).filter(|p| p.exists()));
        for emulator in without {
            let f = within(LIMIT, Command::new(&emulator).args(&cpu).arg(&program));
            assert_eq!(f.ended, Ended::Code(0), "{name}, {}: {}", emulator.display(), f.err());
        }
    }
}
