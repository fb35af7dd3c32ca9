//! Whatever stands in chunks and tables, reading them ends, and ends without a panic.

use consumer::layout::{FLAG_ABORTED, FLAG_REEXEC, FLAG_SPLIT, info, kind};
use consumer::testing::{ChunkBuilder, TableBuilder, insn, load, part, store, stream, with_path};
use consumer::{Chunk, Item, Sums, Table, Tally};
use proptest::prelude::*;
use std::sync::Arc;

/// Reads all there is in every way. The number of items, and whether there was an error.
fn read(table: &Arc<Table>, words: &[u64]) -> (usize, bool) {
    let part = part(&stream(0), table, 0, words);
    let chunk = Chunk::new(&part);
    let mut items = 0;
    let mut failed = false;
    for item in chunk.items() {
        items += 1;
        assert!(items <= words.len() + 1, "more items than words");
        match item {
            Ok(Item::Block(block)) => {
                let mut sums = Sums::default();
                for insn in block.insns() {
                    let _ = (insn.pc(), insn.bytes(), insn.is_traced(), insn.is_resumed());
                    for access in insn.accesses() {
                        if let Some(value) = access.value {
                            assert!(access.size >= 16 || value >> (8 * access.size) == 0);
                        }
                        sums.access(access);
                    }
                }
                let all = block.sums();
                assert_eq!((sums.loads, sums.stores), (all.loads, all.stores));
                if block.is_plain() {
                    assert!(block.plain_accesses().eq(block.insns().flat_map(|i| i.accesses())));
                }
                let direct = block.accesses().count() as u64;
                assert_eq!(direct, sums.loads + sums.stores, "both ways must see the same accesses");
            }
            Ok(Item::Event(event)) => {
                let _ = event.name();
            }
            Err(e) => {
                assert!(!e.to_string().is_empty());
                failed = true;
            }
        }
    }
    assert_eq!(tally(&chunk, table), (slow(&chunk), failed), "the short cut must count the same");
    (items, failed)
}

fn tally(chunk: &Chunk<'_>, table: &Table) -> (Sums, bool) {
    let mut tally = Tally::<()>::default();
    let mut failed = false;
    tally.start(table);
    let mut items = chunk.items();
    loop {
        tally.add_plain(&mut items, |()| {});
        match items.next() {
            None => break,
            Some(Ok(Item::Block(block))) => tally.add(&block, |_| ()),
            Some(Ok(Item::Event(_))) => {}
            Some(Err(_)) => failed = true,
        }
    }
    let mut sums = Sums::default();
    tally.finish(table, |_, s| sums += s);
    (sums, failed)
}

fn slow(chunk: &Chunk<'_>) -> Sums {
    let mut sums = Sums::default();
    for block in chunk.blocks().flatten() {
        sums += block.sums();
    }
    sums
}

/// A table with blocks of all sorts, and a chunk with records of all sorts.
fn everything() -> (TableBuilder, Vec<u64>) {
    let mut t = TableBuilder::new("x86_64", 8, false);
    let plain = t.block(0x1000, &[insn(&[0x90], &[]), insn(&[0x8b, 0x07], &[load(4)])]);
    let rich = t.block(
        0x2000,
        &[
            insn(&[0x8b, 0x07], &[load(4).with(info::VALUE)]),
            insn(&[1, 2, 3], &[store(16).with(info::VALUE | info::OPTIONAL), load(8).with(info::OPTIONAL)]),
            insn(&[0xf3, 0xa4], &[]),
        ],
    );
    let chunk = ChunkBuilder::new()
        .cont(1, 2)
        .block(rich, &[0, 0, 1, 9, 9, 9, 0, 0])
        .record(kind::START, &[1, 2, 3, 4, 5])
        .block(plain, &[0x10])
        .block(plain, &[0x20])
        .partial(rich, 1, FLAG_ABORTED, 2, &[1, 2, 0, 0, 0, 0, 0, 0])
        .block(rich, &[7, 8, 1, 2, 3, 4, 1, 6])
        .access(rich, 0, &[info::STORE | info::VALUE | 16, 1, 2, 3])
        .access(rich, 2, &[1, 5, info::STORE | 1, 6])
        .record(kind::ONCE, &[u64::from(rich) << 32 | 2 << 16])
        .record(kind::MMAP, &with_path(&[0x1000, 0x1000, 5, 2, 0], "/lib/x.so"))
        .record(kind::SYSCALL, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        .partial(rich, 2, FLAG_REEXEC, 8, &[1, 1, 1, 1, 1, 1, 1, 1])
        .access(rich, 2, &[1, 5])
        .block(plain, &[0])
        .partial(rich, 2, FLAG_SPLIT, 8, &[1, 1, 1, 1, 1, 1, 1, 1])
        .record(kind::END, &[1, 0]);
    (t, chunk.words())
}

#[test]
fn the_undamaged_chunk_reads_whole() {
    let (table, words) = everything();
    let (items, failed) = read(&table.finish(), &words);
    assert_eq!((items, failed), (12, false));
}

#[test]
fn every_cut_is_an_error_or_a_shorter_chunk() {
    let (table, words) = everything();
    let table = table.finish();
    for end in 0..words.len() {
        read(&table, &words[..end]);
    }
}

#[test]
fn an_error_names_the_byte() {
    let (table, mut words) = everything();
    let table = table.finish();
    let at = words.iter().position(|w| *w as u32 != 0).unwrap();
    words[at] = u64::from(u32::MAX);
    let part = part(&stream(0), &table, 0, &words);
    let error = Chunk::new(&part).items().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("byte 0x10 of its chunk"), "{error}");
}

fn damage() -> impl Strategy<Value = Vec<(usize, u64, u8)>> {
    let word = prop_oneof![
        any::<u64>(),
        0u64..2048,
        (0u64..16, 0u64..64).prop_map(|(k, n)| k << 32 | n << 40),
        (0u32..64).prop_map(|b| 1 << b),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), word, 0u8..3), 1..6)
        .prop_map(|v| v.into_iter().map(|(i, w, how)| (i.index(usize::MAX), w, how)).collect())
}

fn apply(words: &mut [u64], from: usize, damage: &[(usize, u64, u8)]) {
    let n = words.len() - from;
    for (at, word, how) in damage {
        let place = &mut words[from + at % n];
        *place = match how {
            0 => *word,
            1 => *place ^ word,
            _ => place.wrapping_add(*word),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_chunks_never_panic(damage in damage()) {
        let (table, mut words) = everything();
        apply(&mut words, 0, &damage);
        read(&table.finish(), &words);
    }

    #[test]
    fn damaged_tables_never_panic(damage in damage()) {
        let (table, words) = everything();
        let mut bytes = table.words();
        // The header page is zero but for its start, which is checked when the table is opened.
        apply(&mut bytes, 512, &damage);
        let table = Arc::new(Table::from_words(&bytes).unwrap());
        read(&table, &words);
    }

    #[test]
    fn noise_never_panics(words in prop::collection::vec(prop_oneof![any::<u64>(), 500u64..540, (0u64..16, 0u64..9).prop_map(|(k, n)| k << 32 | n << 40)], 0..64)) {
        let (table, _) = everything();
        read(&table.finish(), &words);
    }
}
