//! Whole machines: `trapline run --system ISA -- QEMU-ARGUMENTS`.
//!
//! Rules:
//! - The arguments are QEMU's own, passed on as they are. What is added: where the distribution's packages keep firmware (`-L`),
//!   unless the user says where, and `-trapline`.
//! - Which code has which name is known of ELF files: the one that `-kernel` names, and those of `--image`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment, SegmentFlags};

use crate::error::At;
use crate::{Error, Result};

/// Where Debian's and others' packages put firmware.
const FIRMWARE: [&str; 7] = [
    "/usr/share/qemu",
    "/usr/share/seabios",
    "/usr/lib/ipxe/qemu",
    "/usr/share/ipxe/qemu",
    "/usr/share/opensbi",
    "/usr/lib/riscv64-linux-gnu/opensbi/generic",
    "/usr/share/qemu-efi",
];

/// The folders with firmware that are there.
pub fn firmware() -> Vec<PathBuf> {
    FIRMWARE.iter().map(PathBuf::from).filter(|d| d.is_dir()).collect()
}

/// Something that most machines start with is there.
pub fn has_firmware() -> bool {
    let has = |file: &str| firmware().iter().any(|d| d.join(file).exists());
    has("bios-256k.bin") && has("linuxboot_dma.bin") && has("efi-e1000.rom")
}

/// What is wrong with QEMU's arguments, before minutes are spent on building.
pub fn fit(args: &[OsString]) -> Result<()> {
    let mut before = "";
    for arg in args {
        let text = arg.to_str().unwrap_or_default();
        let option = text.strip_prefix('-').map(|o| o.trim_start_matches('-')).unwrap_or_default();
        let others = ["kvm", "xen", "hvf", "whpx", "nvmm"];
        let names_other = match before {
            "accel" => text.split([',', ':']).any(|a| others.contains(&a)),
            "machine" | "M" => text
                .split(',')
                .filter_map(|p| p.strip_prefix("accel="))
                .any(|a| a.split(':').any(|a| others.contains(&a))),
            _ => option == "enable-kvm",
        };
        if names_other {
            return Err(Error::Usage {
                what: format!("'{text}': an accelerator runs the guest's code itself, and nothing of it can be traced"),
                hint: "leave it out, or say -accel tcg".into(),
            });
        }
        if option == "trapline" {
            return Err(Error::Usage {
                what: "-trapline is what this command itself gives QEMU".into(),
                hint: "use the options of trapline run".into(),
            });
        }
        before = option;
    }
    Ok(())
}

/// The value of one of QEMU's options.
fn value_of<'a>(args: &'a [OsString], option: &str) -> Option<&'a OsString> {
    let at = args
        .iter()
        .position(|a| a.to_str().is_some_and(|a| a.trim_start_matches('-') == option && a.starts_with('-')))?;
    args.get(at + 1)
}

/// The folders to add: none if the user has said where firmware is.
pub fn folders(args: &[OsString]) -> Vec<PathBuf> {
    if value_of(args, "L").is_some() { Vec::new() } else { firmware() }
}

/// An ELF file whose code will be in the guest's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub path: PathBuf,
    /// Added to the addresses in the file.
    pub bias: u64,
}

/// `FILE` or `FILE@BIAS`.
pub fn image(text: &str) -> std::result::Result<Image, String> {
    match text.rsplit_once('@') {
        None => Ok(Image { path: text.into(), bias: 0 }),
        Some((path, bias)) => {
            let number = match bias.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => bias.parse(),
            };
            number
                .map(|bias| Image { path: path.into(), bias })
                .map_err(|_| format!("'{bias}' is no address: FILE or FILE@BIAS is expected"))
        }
    }
}

/// All images: those that were named, and `-kernel`'s if it is an ELF file.
pub fn images(named: &[Image], args: &[OsString]) -> Vec<Image> {
    let mut images = named.to_vec();
    let kernel = value_of(args, "kernel").map(PathBuf::from);
    let is_elf = |p: &Path| {
        fs::File::open(p).is_ok_and(|f| {
            let mut magic = [0; 4];
            std::io::Read::read_exact(&mut { f }, &mut magic).is_ok() && magic == *b"\x7fELF"
        })
    };
    images.extend(kernel.filter(|k| is_elf(k)).map(|path| Image { path, bias: 0 }));
    images
}

/// As options of `-trapline`.
pub fn settings(images: &[Image]) -> Result<Vec<String>> {
    let mut settings = Vec::new();
    for image in images {
        let path = image.path.canonicalize().at("read", &image.path)?;
        let data = fs::read(&path).at("read", &path)?;
        let file =
            object::File::parse(&*data).map_err(|e| Error::BadElf { program: path.clone(), why: e.to_string() })?;
        for segment in file.segments() {
            let (offset, _) = segment.file_range();
            let prot = match segment.flags() {
                // The bits of p_flags are those of PROT_*, the other way round.
                SegmentFlags::Elf { p_flags } => (p_flags & 4) >> 2 | p_flags & 2 | (p_flags & 1) << 2,
                _ => 5,
            };
            let at = segment.address().wrapping_add(image.bias);
            let text = format!("{at:#x}:{:#x}:{prot}:{offset:#x}:{}", segment.size(), path.display());
            settings.push(format!("map={}", text.replace(',', ",,")));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn accelerators_are_refused_by_name() {
        for bad in [
            "-enable-kvm",
            "--enable-kvm",
            "-m 1 -accel kvm",
            "-machine q35,accel=kvm:tcg",
            "-M pc,accel=xen",
            "-trapline x",
        ] {
            let e = fit(&args(bad)).unwrap_err();
            assert!(e.to_string().contains("accelerator") || e.to_string().contains("-trapline"), "{bad}: {e}");
        }
        for good in ["-accel tcg", "-machine q35", "-name kvm", "-append enable-kvm -m 64"] {
            assert!(fit(&args(good)).is_ok(), "{good}");
        }
    }

    #[test]
    fn images_are_named_with_where_they_lie() {
        assert_eq!(image("vmlinux"), Ok(Image { path: "vmlinux".into(), bias: 0 }));
        assert_eq!(image("a@b@0x10"), Ok(Image { path: "a@b".into(), bias: 16 }));
        assert!(image("a@b").is_err());
        assert!(folders(&args("-L /x")).is_empty());
        assert_eq!(value_of(&args("-m 1 -kernel k"), "kernel").unwrap(), "k");
        assert!(images(&[], &args("-kernel /nonexistent")).is_empty());
    }
}
