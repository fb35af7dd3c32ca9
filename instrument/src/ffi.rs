//! The shared header as bindgen reads it, and the checks that both sides mean the same.

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/trapline.rs"));

/// The version of the header. QEMU refers to this symbol: if the patch was made for another version, the link fails
/// and names the symbol of the version that it wanted.
#[unsafe(no_mangle)]
pub static trapline_abi_version_4: u32 = TRAPLINE_ABI;

const _: () = {
    assert!(TRAPLINE_ABI == 4);
    assert!(size_of::<TraplineVcpu>() == 160);
    assert!(size_of::<TraplineCall>() == 120);
    assert!(size_of::<TraplineInsn>() == 32);
    assert!(size_of::<TraplineAccess>() == 16);
    assert!(size_of::<TraplinePoint>() == 16);
    assert!(size_of::<TraplineCondition>() == 24);
    assert!(size_of::<TraplineArg>() == 16);
    assert!(size_of::<TraplineAction>() == 224);
    assert!(size_of::<TraplineCount>() == 24);
    assert!(size_of::<TraplineBlockInsn>() == 16);
    assert!(size_of::<TraplineBlockAccess>() == 8);
    assert!(TRAPLINE_CHUNK_SLACK as usize == pipe::layout::CHUNK_SLACK);
    assert!(TRAPLINE_MODE_ALT == pipe::layout::BLOCK_ALT_MODE);
    assert!(TRAPLINE_MODE_CODE16 == pipe::layout::BLOCK_CODE16);
    assert!(TRAPLINE_MODE_USER == pipe::layout::BLOCK_USER);
    assert!(TRAPLINE_MODE_LEVEL_KNOWN == pipe::layout::BLOCK_LEVEL_KNOWN);
    assert!(TRAPLINE_MODE_LEVEL_SHIFT == pipe::layout::BLOCK_LEVEL_SHIFT);
    assert!(TRAPLINE_MODE_CODE32 == pipe::layout::BLOCK_CODE32);
    assert!((TRAPLINE_ACCESS_STORE as u64) << 32 == pipe::layout::info::STORE);
    assert!((TRAPLINE_ACCESS_SIGNED as u64) << 32 == pipe::layout::info::SIGNED);
    assert!((TRAPLINE_ACCESS_BIG_ENDIAN as u64) << 32 == pipe::layout::info::BIG_ENDIAN);
    assert!((TRAPLINE_ACCESS_ATOMIC as u64) << 32 == pipe::layout::info::ATOMIC);
    assert!((TRAPLINE_ACCESS_VALUE as u64) << 32 == pipe::layout::info::VALUE);
    assert!((TRAPLINE_ACCESS_OPTIONAL as u64) << 32 == pipe::layout::info::OPTIONAL);
    assert!((TRAPLINE_ACCESS_FOOTPRINT as u64) << 32 == pipe::layout::info::FOOTPRINT);
    assert!((TRAPLINE_ACCESS_PADDR as u64) << 32 == pipe::layout::info::PADDR);
    assert!(TRAPLINE_PHYSICAL_RAM == pipe::layout::physical::RAM << pipe::layout::physical::SHIFT);
    assert!(TRAPLINE_PHYSICAL_ROM == pipe::layout::physical::ROM << pipe::layout::physical::SHIFT);
    assert!(TRAPLINE_PHYSICAL_IO == pipe::layout::physical::IO << pipe::layout::physical::SHIFT);
    assert!(TRAPLINE_WANT_TRACE == pipe::layout::INSN_TRACED as u32);
};
