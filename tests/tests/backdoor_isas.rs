//! The backdoor on ISAs that the machine may have no compiler for: guests of a dozen instructions, assembled by hand.
//!
//! Each asks whether somebody answers, adds 40 and 2 through the backdoor (`ECHO`), and exits with the sum: 42.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Ended, Finished, qemu, scratch, within};

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
    code: &'static [u32],
}

/// A file with one loaded segment: headers, then the code.
fn elf(h: &Hand, path: &Path) {
    let mut f: Vec<u8> = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(h.wide), 1 + u8::from(h.big), 1];
    f.resize(16, 0);
    let put = |f: &mut Vec<u8>, n: u64, len: usize| {
        if h.big { f.extend(&n.to_be_bytes()[8 - len..]) } else { f.extend(&n.to_le_bytes()[..len]) }
    };
    let word = if h.wide { 8 } else { 4 };
    let (eh, ph) = if h.wide { (64, 56) } else { (52, 32) };
    let start = (eh + ph + 15) & !15;
    let end = start + h.code.len() * h.unit;
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
    for n in h.code {
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
        code: &[
            0x0315_10c0, // sethi %hi(0x54430000), %g1
            0x8210_6002, // or %g1, 2, %g1
            0x9010_2028, // mov 40, %o0
            0x9210_2002, // mov 2, %o1
            0x0035_5154, // call
            0x8210_20bc, // mov 188, %g1: exit_group
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
        code: &[
            0x203c, 0x5443, 0x0002, // move.l #0x54430002, d0
            0x7228, // moveq #40, d1
            0x7402, // moveq #2, d2
            0x4afc, 0x5154, // call
            0x2200, // move.l d0, d1
            0x203c, 0x0000, 0x00f7, // move.l #247, d0: exit_group
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
        code: &[
            0x5443_08b7, // lui a7, 0x54430
            0x0028_8893, // addi a7, a7, 2
            0x0280_0513, // li a0, 40
            0x0020_0593, // li a1, 2
            0xc008_9073, // call
            0x05e0_0893, // li a7, 94: exit_group
            0x0000_0073, // ecall
        ],
    },
];

#[test]
fn a_call_comes_through_and_is_illegal_where_nobody_answers() {
    let folder = scratch();
    for h in HANDS {
        let program: PathBuf = folder.path().join(format!("{}{}", h.target, h.flags));
        elf(h, &program);
        let emulator = qemu(h.target, "trace");
        let cpu = h.cpu.map_or(vec![], |c| vec!["-cpu", c]);
        let f = run(&emulator, &cpu, &program, folder.path());
        assert_eq!(f.ended, Ended::Code(42), "{}: {}", h.target, f.err());
        // Without the option the same instruction is illegal (but LoongArch's guest asks first, and waits).
        if h.target != "loongarch64" {
            let f = within(LIMIT, Command::new(&emulator).args(&cpu).arg(&program));
            // QEMU's MicroBlaze has no exception for it in user mode: it goes on, and exits with what is in r3.
            let expected = if h.target == "microblaze" { Ended::Code(0) } else { Ended::Signal(libc::SIGILL) };
            assert_eq!(f.ended, expected, "{}: {}", h.target, f.err());
        }
    }
}
